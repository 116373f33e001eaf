"""Rows of MIG instances, on a host whose first GPU is cut into seven."""

from collections.abc import Iterator

import pynvml
from tests.faults.hosts import GPUS_EVERY_SECOND, SEVEN
from tests.faults.injections import Begin, answers, counting, of_instance, of_instance_handle
from tests.faults.row import ALL_WELL, DRIVER, OTHERS, Row, Says

from gpu_triage_simulator import effects
from gpu_triage_simulator.effects import Mig, MigInstance
from gpu_triage_simulator.scenario import Event

MIG = "A GPU in MIG mode"
SWITCHED = "MIG is switched while it runs"

_HANDLE, _MOST, _MODE = (
    "nvmlDeviceGetMigDeviceHandleByIndex",
    "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlDeviceGetMigMode",
)
_UUID, _SAMPLE = "nvmlDeviceGetUUID", "nvmlGpmMigSampleGet"
_UNKNOWN, _DENIED = pynvml.NVML_ERROR_UNKNOWN, pynvml.NVML_ERROR_NO_PERMISSION
_GONE, _INVALID = pynvml.NVML_ERROR_NOT_FOUND, pynvml.NVML_ERROR_INVALID_ARGUMENT
_EVERY = range(7)
_OTHER_CUT = Mig((MigInstance("3g.40gb", gi=1, slot=0), MigInstance("4g.40gb", gi=2, slot=1)))


def rows() -> Iterator[Row]:
    yield _row(f"`{_MODE}` answers UNKNOWN", answers(_UNKNOWN, _MODE), "mig", "modes")
    yield _row(f"`{_MOST}` answers UNKNOWN", answers(_UNKNOWN, _MOST), "mig")
    yield _row("the driver counts two billion instances", counting(_MOST, 1 << 31), "mig", error="implausible")
    yield _row("the driver counts no instance", counting(_MOST, 0))
    yield _row(f"`{_HANDLE}` answers UNKNOWN", of_instance_handle(_UNKNOWN, *_EVERY), "mig")
    yield _row("every handle is denied", of_instance_handle(_DENIED, *_EVERY), "mig", error="no_permission")
    yield _row("the handle of one instance is denied", of_instance_handle(_DENIED, 3), "mig", error="no_permission")
    yield _row("one instance is gone between the listing and its UUID", of_instance(_GONE, 3))
    for when, begin in (
        ("by the time it is asked", of_instance(_INVALID, 3)),
        ("behind its UUID", of_instance(_INVALID, 3, _UUID)),
    ):
        yield _row(f"one instance's handle is invalid {when}", begin, "mig", error="invalid_argument")
    yield _row(f"`{_SAMPLE}` answers UNKNOWN", answers(_UNKNOWN, _SAMPLE), "mig")
    yield from _switched()


def _row(fault: str, begin: Begin, *collectors: str, error: str = "unknown") -> Row:
    return Row(
        group=MIG,
        fault=fault,
        moment="every reading",
        says=Says(errors=frozenset(f"{collector}: {error}" for collector in collectors)),
        begin=begin,
        host="cut",
        twin="cut",
        config=GPUS_EVERY_SECOND,
        lasts=4,
        recovers_within=2,
        shared=True,
    )


def _switched() -> Iterator[Row]:
    for words, host, mig in (
        ("on, and the GPU is cut into seven", "two", SEVEN),
        ("on, without an instance", "two", Mig()),
        ("the GPU is cut anew, into two larger instances", "cut", _OTHER_CUT),
        ("every instance is destroyed", "cut", Mig()),
    ):
        yield Row(
            group=SWITCHED,
            fault=words,
            moment="GPU 0",
            says=ALL_WELL,
            reach=frozenset({"0", "1"}) if host == "two" else frozenset({"0"}),
            events=(Event(20, 40, (0,), mig),),
            host=host,
            twin=host,
            recovers_within=65,
        )
    yield Row(
        group=SWITCHED,
        fault="the GPU that is cut is lost",
        moment="GPU 0",
        says=Says(gpus={"0": "lost"}, errors=frozenset({"activity: lost"})),
        reach=frozenset({"0", "1", DRIVER, OTHERS}),
        events=(Event(20, 40, (0,), effects.Lost()),),
        host="cut",
        twin="cut",
        recovers_within=50,
        leaves=frozenset({"gpu_xid_errors_total", "gpu_xid_last_timestamp_seconds"}),
    )
