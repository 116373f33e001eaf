"""Rows of MIG instances, on a host whose first GPU is cut into seven."""

from collections.abc import Iterator
from functools import partial

import pynvml
from tests.faults.hosts import GPUS_EVERY_SECOND, SEVEN
from tests.faults.injections import answers, counting, of_instance, of_instance_handle
from tests.faults.row import DRIVER, OTHERS, Row, Says, counts

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


_cut = partial(Row, host="cut", twin="cut")
_reading = partial(_cut, MIG, moment="every reading", config=GPUS_EVERY_SECOND, lasts=4, recovers_within=2, shared=True)


def rows() -> Iterator[Row]:
    unknown = counts("mig: unknown")
    yield _reading(
        f"`{_MODE}` answers UNKNOWN", says=counts("mig: unknown", "modes: unknown"), begin=answers(_UNKNOWN, _MODE)
    )
    yield _reading(f"`{_MOST}` answers UNKNOWN", says=unknown, begin=answers(_UNKNOWN, _MOST))
    says, begin = counts("mig: implausible"), counting(_MOST, 1 << 31)
    yield _reading("the driver counts two billion instances", says=says, begin=begin)
    yield _reading("the driver counts no instance", begin=counting(_MOST, 0))
    yield _reading(f"`{_HANDLE}` answers UNKNOWN", says=unknown, begin=of_instance_handle(_UNKNOWN, *_EVERY))
    denied = counts("mig: no_permission")
    yield _reading("every handle is denied", says=denied, begin=of_instance_handle(_DENIED, *_EVERY))
    yield _reading("the handle of one instance is denied", says=denied, begin=of_instance_handle(_DENIED, 3))
    yield _reading("one instance is gone between the listing and its UUID", begin=of_instance(_GONE, 3))
    for when, begin in (
        ("by the time it is asked", of_instance(_INVALID, 3)),
        ("behind its UUID", of_instance(_INVALID, 3, _UUID)),
    ):
        yield _reading(f"one instance's handle is invalid {when}", says=counts("mig: invalid_argument"), begin=begin)
    yield _reading(f"`{_SAMPLE}` answers UNKNOWN", says=unknown, begin=answers(_UNKNOWN, _SAMPLE))
    yield from _switched()


def _switched() -> Iterator[Row]:
    switched = partial(Row, SWITCHED, moment="GPU 0", recovers_within=65)
    for words, host, mig in (
        ("on, and the GPU is cut into seven", "two", SEVEN),
        ("on, without an instance", "two", Mig()),
        ("the GPU is cut anew, into two larger instances", "cut", _OTHER_CUT),
        ("every instance is destroyed", "cut", Mig()),
    ):
        reach = frozenset({"0", "1"}) if host == "two" else frozenset({"0"})
        yield switched(words, reach=reach, events=(Event(20, 40, (0,), mig),), host=host, twin=host)
    yield switched(
        "the GPU that is cut is lost",
        says=Says(gpus={"0": "lost"}, errors=frozenset({"activity: lost"})),
        reach=frozenset({"0", "1", DRIVER, OTHERS}),
        events=(Event(20, 40, (0,), effects.Lost()),),
        host="cut",
        twin="cut",
        recovers_within=50,
        leaves=frozenset({"gpu_xid_errors_total", "gpu_xid_last_timestamp_seconds"}),
    )
