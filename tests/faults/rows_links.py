"""Rows of GPM, NVLink, the fabric and the recovery action, as far as a call that fails does not cover them."""

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import pynvml
from tests.faults.hosts import GPUS_EVERY_SECOND
from tests.faults.injections import Begin, answers, failing_fields, filled, with_fields
from tests.faults.row import Row, Says, counts

GPM = "GPM fails where no GPU is asked"
LINKS = "NVLink, the fabric and the recovery action answer oddly"

_ALLOC, _FREE, _GET = "nvmlGpmSampleAlloc", "nvmlGpmSampleFree", "nvmlGpmMetricsGet"
_SUPPORT, _FABRIC = "nvmlGpmQueryDeviceSupport", "nvmlDeviceGetGpuFabricInfoV"
_UNKNOWN = pynvml.NVML_ERROR_UNKNOWN
_STATE, _LINK_COUNT, _RECOVERY = 165, 91, 230
_BOTH = frozenset({"0", "1"})


_reading = partial(Row, config=GPUS_EVERY_SECOND, lasts=4, recovers_within=3, shared=True)
_of_gpm = partial(_reading, GPM, moment="while it runs", reach=_BOTH)
_of_links = partial(_reading, LINKS, moment="while it runs, GPU 0")


def rows() -> Iterator[Row]:
    anywhere = {None, 0, 1}
    begin = answers(_UNKNOWN, _GET, gpus=anywhere)
    yield _of_gpm(f"`{_GET}` answers UNKNOWN", says=_by_gpm("unknown"), begin=begin)
    yield _from_start(f"`{_ALLOC}` answers MEMORY", answers(pynvml.NVML_ERROR_MEMORY, _ALLOC, gpus=anywhere), "memory")
    yield _from_start(f"`{_SUPPORT}` answers UNKNOWN", answers(_UNKNOWN, _SUPPORT, gpus=anywhere), "unknown")
    yield _of_gpm(f"`{_FREE}` answers UNKNOWN", reach=frozenset({"0"}), begin=answers(_UNKNOWN, _FREE, gpus=anywhere))
    begin = answers(pynvml.NVML_ERROR_NO_PERMISSION, "nvmlGpmSampleGet", _FREE, gpus=anywhere)
    words = "`nvmlGpmSampleGet` is refused, and so is giving its buffer back"
    yield _of_gpm(words, says=_by_gpm("no_permission"), begin=begin)
    begin = failing_fields({_STATE}, _UNKNOWN)
    yield _of_links("each link's state answers UNKNOWN", says=counts("nvlink: unknown"), begin=begin)
    says, begin = counts("nvlink: unknown", "nvlink_quality: unknown"), failing_fields({_LINK_COUNT}, _UNKNOWN)
    yield _of_links("the number of links answers UNKNOWN", says=says, begin=begin)
    says = counts("nvlink: implausible", "nvlink_quality: implausible")
    yield _of_links("four billion links", says=says, begin=with_fields({_LINK_COUNT}, lambda *_: 0xFFFF_FFFE))
    yield _of_links("no links", begin=with_fields({_LINK_COUNT}, lambda *_: 0))
    begin = with_fields({_STATE}, lambda *_: 7)
    yield _of_links("a state of links that no header lists (7)", says=counts("nvlink: implausible"), begin=begin)
    says = Says(gpus={"0": "lost"}, errors=frozenset({"nvlink: lost"}))
    begin = failing_fields({_STATE}, pynvml.NVML_ERROR_GPU_IS_LOST)
    yield _of_links("one of GPU 0's links is lost in the call (GPU_IS_LOST)", says=says, begin=begin)
    begin = failing_fields({_RECOVERY}, _UNKNOWN)
    yield _of_links("the recovery action answers UNKNOWN", says=counts("recovery: unknown"), begin=begin)
    yield _of_links("a recovery action that no header lists (9)", begin=with_fields({_RECOVERY}, lambda *_: 9))
    says, begin = counts("recovery: implausible"), with_fields({_RECOVERY}, lambda *_: 1 << 31)
    yield _of_links("a recovery action of 2^31", says=says, begin=begin)
    says = counts("fabric: implausible")
    yield _of_links("the fabric's state is 77", says=says, begin=filled(_FABRIC, state=77))
    yield _of_links("the fabric's health is 77", says=says, begin=filled(_FABRIC, healthSummary=77))
    yield _of_links("the fabric is not supported after all", begin=filled(_FABRIC, state=0))


def _by_gpm(error: str) -> Says:
    """An error of those who read GPM: it has the traffic of PCIe, too."""
    return counts(f"gpm: {error}", f"pcie: {error}")


def _from_start(fault: str, begin: Begin, error: str) -> Row:
    says = replace(_by_gpm(error), failing=frozenset({"gpm"}))
    return _of_gpm(fault, moment="from the start", says=says, begin=begin, at=0, lasts=10, shared=False)
