"""Rows of processes, of time, and of size."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

from tests.faults import files
from tests.faults.files import Damaged
from tests.faults.hosts import CROWD, EVERY_SECOND, SLOW_TIER_EVERY_TEN_SECONDS
from tests.faults.injections import FOREVER, damaging, takes
from tests.faults.row import DRIVER, HOST, OTHERS, Row, Says, call_in_flight
from tests.faults.stage import Stage

from gpu_triage_simulator import host_effects
from gpu_triage_simulator.scenario import Event

PROCESSES = "Processes come and go"
TIME = "The wall clock is set"
SIZE = "More than usual"

_PID = 41000
_HOUR_SECONDS = 3600.0


def rows() -> Iterator[Row]:
    yield _of_a_process("a PID is reused by another process", another_process)
    yield _of_a_process("the driver lists a process that is gone from `/proc`", files.missing)
    clock_set = partial(Row, TIME, reach=frozenset({"0", "1"}), config=EVERY_SECOND, recovers_within=6)
    for hours in (-3, 3):
        words = f"{abs(hours)} hours {'back' if hours < 0 else 'forward'}, then the other way"
        there, back = (partial(Stage.set_wall_by, seconds=sign * hours * _HOUR_SECONDS) for sign in (1, -1))
        yield clock_set(words, begin=there, end=back)
    size = partial(Row, SIZE)
    at_start = partial(size, moment="from the start", at=0, ends=False)
    yield at_start("16 GPUs", reach=frozenset({OTHERS, DRIVER}), host="sixteen")
    everyone = frozenset({"0", "1", OTHERS, DRIVER, HOST})
    yield at_start("16 GPUs, each cut into 7 MIG instances", reach=everyone, host="sixteen cut")
    calls = frozenset({call_in_flight("activity", "nvmlDeviceGetPerformanceState")})
    yield size(
        "of 16 GPUs, each cut into 7 MIG instances, the first hangs",
        says=Says(gpus={"0": "stalled"}, failing=frozenset({"activity"}), calls=calls),
        begin=takes(FOREVER),
        host="sixteen cut",
        twin="sixteen cut",
        config=SLOW_TIER_EVERY_TEN_SECONDS,
        at=12,
        recovers_within=12,
    )
    start = (Event(20, 30, (), host_effects.Start(CROWD)),)
    crowd = f"{len(CROWD):,} processes start on GPU 0, and end"
    yield size(crowd, events=start, host="crowded", lasts=10, recovers_within=6)


def _of_a_process(fault: str, damage: files.Damage) -> Row:
    begin = damaging(Damaged(f"proc/{_PID}", damage))
    return Row(PROCESSES, fault, "between two readings", begin=begin, recovers_within=6)


def another_process(path: Path) -> None:
    path.mkdir()
    (path / "stat").write_text(f"{path.name} (nvtop) S 1 {' '.join(['0'] * 17)} 99999999 0 0\n")
    (path / "status").write_text("Name:\tnvtop\nUid:\t1001\t1001\t1001\t1001\nCpus_allowed_list:\t0-7\n")
    (path / "cgroup").write_text("0::/user.slice/user-1001.slice/session-7.scope\n")
