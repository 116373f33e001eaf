"""Rows of GPM, NVLink, the fabric and the recovery action, as far as a call that fails does not cover them."""

from collections.abc import Iterator

import pynvml
from tests.faults.hosts import GPUS_EVERY_SECOND
from tests.faults.injections import Begin, answers, failing_fields, filled, with_fields
from tests.faults.row import ALL_WELL, Row, Says

GPM = "GPM fails where no GPU is asked"
LINKS = "NVLink, the fabric and the recovery action answer oddly"

_ALLOC, _FREE, _GET = "nvmlGpmSampleAlloc", "nvmlGpmSampleFree", "nvmlGpmMetricsGet"
_SUPPORT, _FABRIC = "nvmlGpmQueryDeviceSupport", "nvmlDeviceGetGpuFabricInfoV"
_UNKNOWN = pynvml.NVML_ERROR_UNKNOWN
_STATE, _LINK_COUNT, _RECOVERY = 165, 91, 230
_BOTH = frozenset({"0", "1"})


def rows() -> Iterator[Row]:
    anywhere = {None, 0, 1}
    yield _row(
        GPM, f"`{_GET}` answers UNKNOWN", answers(_UNKNOWN, _GET, gpus=anywhere), *_by_gpm("unknown"), reach=_BOTH
    )
    yield _from_start(f"`{_ALLOC}` answers MEMORY", answers(pynvml.NVML_ERROR_MEMORY, _ALLOC, gpus=anywhere), "memory")
    yield _from_start(f"`{_SUPPORT}` answers UNKNOWN", answers(_UNKNOWN, _SUPPORT, gpus=anywhere), "unknown")
    yield _row(GPM, f"`{_FREE}` answers UNKNOWN", answers(_UNKNOWN, _FREE, gpus=anywhere))
    yield _row(
        GPM,
        "`nvmlGpmSampleGet` is refused, and so is giving its buffer back",
        answers(pynvml.NVML_ERROR_NO_PERMISSION, "nvmlGpmSampleGet", _FREE, gpus=anywhere),
        *_by_gpm("no_permission"),
        reach=_BOTH,
    )
    yield _row(LINKS, "each link's state answers UNKNOWN", failing_fields({_STATE}, _UNKNOWN), "nvlink: unknown")
    uncounted = ("nvlink: unknown", "nvlink_quality: unknown")
    yield _row(LINKS, "the number of links answers UNKNOWN", failing_fields({_LINK_COUNT}, _UNKNOWN), *uncounted)
    implausible = ("nvlink: implausible", "nvlink_quality: implausible")
    yield _row(LINKS, "four billion links", with_fields({_LINK_COUNT}, lambda *_: 0xFFFF_FFFE), *implausible)
    yield _row(LINKS, "no links", with_fields({_LINK_COUNT}, lambda *_: 0))
    yield _row(LINKS, "a state of links that no header lists (7)", with_fields({_STATE}, lambda *_: 7), *_IMPLAUSIBLE)
    yield _row(
        LINKS,
        "one of GPU 0's links is lost in the call (GPU_IS_LOST)",
        failing_fields({_STATE}, pynvml.NVML_ERROR_GPU_IS_LOST),
        "nvlink: lost",
        gpus={"0": "lost"},
    )
    yield _row(LINKS, "the recovery action answers UNKNOWN", failing_fields({_RECOVERY}, _UNKNOWN), "recovery: unknown")
    yield _row(LINKS, "a recovery action that no header lists (9)", with_fields({_RECOVERY}, lambda *_: 9))
    yield _row(LINKS, "a recovery action of 2^31", with_fields({_RECOVERY}, lambda *_: 1 << 31), *_NO_ACTION)
    yield _row(LINKS, "the fabric's state is 77", filled(_FABRIC, state=77), "fabric: implausible")
    yield _row(LINKS, "the fabric's health is 77", filled(_FABRIC, healthSummary=77), "fabric: implausible")
    yield _row(LINKS, "the fabric is not supported after all", filled(_FABRIC, state=0))


def _by_gpm(error: str) -> tuple[str, str]:
    """An error of those who read GPM: it has the traffic of PCIe, too."""
    return f"gpm: {error}", f"pcie: {error}"


_IMPLAUSIBLE = ("nvlink: implausible",)
_NO_ACTION = ("recovery: implausible",)


def _row(
    group: str,
    fault: str,
    begin: Begin,
    *errors: str,
    reach: frozenset[str] = frozenset({"0"}),
    gpus: dict[str, str] | None = None,
) -> Row:
    return Row(
        group=group,
        fault=fault,
        moment="while it runs" if group == GPM else "while it runs, GPU 0",
        says=Says(gpus=gpus or {}, errors=frozenset(errors)) if errors else ALL_WELL,
        reach=reach,
        begin=begin,
        config=GPUS_EVERY_SECOND,
        lasts=4,
        recovers_within=3,
        shared=True,
    )


def _from_start(fault: str, begin: Begin, error: str) -> Row:
    return Row(
        group=GPM,
        fault=fault,
        moment="from the start",
        says=Says(errors=frozenset(_by_gpm(error)), failing=frozenset({"gpm"})),
        reach=_BOTH,
        begin=begin,
        config=GPUS_EVERY_SECOND,
        at=0,
        lasts=10,
        recovers_within=3,
    )
