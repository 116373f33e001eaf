"""Rows of GPUs that are lost, come and go, or are not what the driver says."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import pynvml
from tests.faults.injections import answers, inventing_uuids, says_count
from tests.faults.library import every_collector
from tests.faults.row import DRIVER, OTHERS, Row, Says

from gpu_triage_simulator import effects
from gpu_triage_simulator.scenario import Event

GPU = "A GPU is gone"
FLEET = "GPUs come and go"
IDENTITY = "The driver says what cannot be of its GPUs"

_XIDS = frozenset({"gpu_xid_errors_total", "gpu_xid_last_timestamp_seconds"})
_AT, _LASTS = 20, 30


# Another process looks for a GPU that is gone every 10 s; NVML is initialized again once it is seen.
_staged = partial(Row, at=_AT, lasts=_LASTS, recovers_within=15)


def rows() -> Iterator[Row]:
    """All of them."""
    for words, effect, error in (
        ("lost (fallen off the bus)", effects.Lost(), "lost"),
        ("a reset is required", effects.ResetRequired(), "reset_required"),
        ("its handle is denied", effects.Denied(), "no_permission"),
    ):
        # A handle that was given stays good: only those who ask for one are told.
        noticed = frozenset({f"activity: {error}"}) if error != "no_permission" else frozenset()
        says, leaves = Says(gpus={"0": error}, errors=noticed), _XIDS if error == "lost" else frozenset()
        row = _staged(GPU, words, says=says, reach=_reach(0), events=_while_staged(0, effect), leaves=leaves)
        yield row
        yield _from_the_start(row)
    for gpu, words in (
        (1, "the last GPU is removed and returns"),
        (0, "the first GPU is removed and returns: the other has its index meanwhile, and keeps its UUID"),
    ):
        says = Says(gpus={str(gpu): "missing"}, errors=frozenset({"activity: lost"}))
        yield _staged(FLEET, words, says=says, reach=_reach(gpu), events=_while_staged(gpu, effects.Removed()))
    yield from _counts()
    yield from _identities()


def _reach(gpu: int) -> frozenset[str]:
    return frozenset({str(gpu), DRIVER})


def _while_staged(gpu: int, effect: Any) -> tuple[Event, ...]:
    return (Event(_AT, _AT + _LASTS, (gpu,), effect),)


def _from_the_start(row: Row) -> Row:
    """The row of a GPU that was never there: no reading can have failed."""
    assert isinstance(row.says, Says)
    events = tuple(replace(event, at=0, until=_LASTS) for event in row.events)
    return replace(row, moment="from the start", at=0, events=events, says=replace(row.says, errors=frozenset()))


def _counts() -> Iterator[Row]:
    counts: Mapping[int, tuple[str, Says]] = {
        0: ("the driver counts no GPU", Says(gpus={"0": "missing", "1": "missing"}, failing=every_collector())),
        1: ("the driver counts one GPU less", Says(gpus={"1": "missing"})),
        3: ("the driver counts one GPU more than it gives handles for", Says(gpus={"2": "invalid_argument"})),
    }
    for count, (words, says) in counts.items():
        yield Row(
            group=FLEET,
            fault=words,
            says=says,
            reach=frozenset({"0", "1", DRIVER}) if not count else frozenset({"1", DRIVER}),
            begin=says_count(count),
            recovers_within=7,
            ends=count != 3,
        )
    gone = {"0": "driver_unavailable", "1": "driver_unavailable"}
    says = Says(gpus=gone, driver="library_invalid", failing=every_collector())
    row = Row(FLEET, "the driver counts four billion GPUs", says=says, reach=frozenset({"0", "1", DRIVER}))
    yield replace(row, begin=says_count(0xFFFF_FFFF), recovers_within=20)


def _identities() -> Iterator[Row]:
    row = partial(Row, IDENTITY)
    at_start = partial(row, moment="from the start", at=0, ends=False)
    yield at_start("two GPUs have one UUID", reach=frozenset({"1"}), host="one UUID")
    says, reach = Says(gpus={"0": "missing"}), frozenset({"0", OTHERS, DRIVER})
    other = row("GPU 0 has another UUID whenever it is asked", says=says, reach=reach, begin=inventing_uuids(0))
    yield replace(other, lasts=11, ends=False)
    says, begin = Says(gpus={"0": "malformed"}), inventing_uuids(0, as_text=False)
    yield row("GPU 0 has a UUID that is no text", says=says, begin=begin, recovers_within=7)
    begin = answers(pynvml.NVML_ERROR_UNKNOWN, "nvmlDeviceGetPciInfo_v3")
    yield at_start("GPU 0 has no address on the bus", begin=begin)
