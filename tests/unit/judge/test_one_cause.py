"""Each kind of fault on one host, alone and in pairs: one cause is one notification, and two causes are two.

What the judge confirms is what alerts relay. Alerts of one name about one host are one notification.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import combinations
from typing import Any, Final

import pytest
from tests.judged import Judged, judged
from tests.rig import only
from tests.rules.cases import load_case

from gpu_triage.judge.findings.table import BY_CODE, Severity
from gpu_triage_simulator import effects, host_effects
from gpu_triage_simulator.load import Load
from gpu_triage_simulator.scenario import Event

pytestmark = [pytest.mark.full, pytest.mark.timeout(600)]

_BEGINS: Final = 300
_ENDS: Final = 4800.0
_BUSY: Final = Load(utilization=0.95, memory_utilization=0.5, intensity=0.8, jitter=0.01)
_WAITS: Final = Load(utilization=0.0, memory_utilization=0.0, intensity=0.8, jitter=0.0, resting_watts=60)
_STUCK: Final = host_effects.BlockedThreads((3102,), "rpc_wait_bit_killable")
_SILENT: Final = (
    "nfs: server nas01 not responding, still trying",
    "INFO: task python:3102 blocked for more than 122 seconds.",
    "INFO: task python:3103 blocked for more than 122 seconds.",
)

FAULTS: Final[dict[str, tuple[tuple[Any, ...], set[str]]]] = {
    "locked clock": ((effects.ApplicationClock(1000),), {"GpuClockPolicyDrift"}),
    "slow fan": ((effects.ThermalThrottle("sw", 1000),), {"GpuSwThermalThrottling"}),
    "dead fan": ((effects.ThermalThrottle("hw", 1000),), {"GpuHwThermalThrottling"}),
    "power brake": ((effects.PowerBrake(900),), {"GpuPowerBrake"}),
    # A lowered limit is context, and the GPU that it makes slow a ticket.
    "power cap": ((effects.PowerLimit(90.0),), {"GpuStraggler"}),
    "bad memory": ((effects.EccErrors(corrected_per_hour=2000),), {"GpuEccCorrectedRising"}),
    "broken memory": ((effects.EccErrors(uncorrected=2),), {"GpuEccUncorrected"}),
    "narrow link": ((effects.Link(width=4),), {"GpuPcieWidthDowntrained"}),
    "noisy link": ((effects.PcieErrors(replays_per_hour=4000),), {"GpuPcieReplaysRising"}),
    "silent file server": (
        (_WAITS, _STUCK, host_effects.Pressure("io", 0.99), host_effects.KernelMessages(_SILENT)),
        {"GpuHostTaskHung"},
    ),
}


@contextmanager
def playing(*events: Event) -> Iterator[Judged]:
    """The judge at work on three busy GPUs."""
    base = load_case("held-back-policy")
    busy = Event(0, None, tuple(range(len(base.gpus))), _BUSY)
    collectors = (
        *("activity", "power", "throttle", "clocks", "clock_targets", "thermal", "limits", "identity", "processes"),
        *("ecc", "pcie", "pcie_limits", "pcie_errors", "host_pressure", "host_cpu", "host_kernel_log"),
    )
    config = only(*collectors, sample_fast_seconds=30.0, sample_medium_seconds=30.0)
    with judged(replace(base, events=(busy, *events), expectations=()), config) as watched:
        watched.run_to(_ENDS)
        yield watched


def told(*faults: str) -> set[str]:
    """The alerts that a host with these faults has within 80 minutes, but for context."""
    events = (
        # A GPU that waits has no load, without which some faults cannot be seen: another one does.
        Event(
            _BEGINS, None, () if type(effect).__module__ == host_effects.__name__ else (2 * (effect is _WAITS),), effect
        )
        for fault in faults
        for effect in FAULTS[fault][0]
    )
    with playing(*events) as watched:
        checks = [BY_CODE[code] for subject, code in watched.lives if watched.told(subject, code)]
    return {check.alert for check in checks if check.alert and check.severity is not Severity.INFO}


def test_what_was_told_before_its_cause_began_goes_on() -> None:
    slow, hot = (
        Event(_BEGINS, None, (0,), effects.PowerLimit(90.0)),
        Event(2400, None, (0,), effects.ThermalThrottle("hw", 1000)),
    )
    with playing(slow, hot) as watched:
        ((straggler, until),) = watched.told("0", "clock.straggler")
        ((heat, _),) = watched.told("0", "thermal.hw")
    assert straggler < heat < until


@pytest.mark.parametrize("fault", tuple(FAULTS))
def test_a_fault_is_one_notification(fault: str) -> None:
    assert told(fault) == FAULTS[fault][1]


# A straggler is one of three GPUs that work.
PAIRS: Final = tuple(each for each in combinations(FAULTS, 2) if each != ("power cap", "silent file server"))


@pytest.mark.parametrize("faults", PAIRS, ids=" and ".join)
def test_two_faults_are_both_told(faults: tuple[str, str]) -> None:
    """But for a low clock, of which the other one is reason enough."""
    found = told(*faults)
    explained = {
        BY_CODE[symptom].alert
        for symptom in ("clock.straggler", "thermal.sw")
        if found & {BY_CODE[cause].alert for cause in BY_CODE[symptom].explained_by}
    }
    assert found >= (FAULTS[faults[0]][1] | FAULTS[faults[1]][1]) - explained
