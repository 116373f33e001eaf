"""What `gpu-triage check` finds, beside what the alert rules say of the same moment of the same scenario."""

import pytest
from tests.one_shot import look_at

from gpu_triage.alerting.shipped import shipped_sources
from gpu_triage.judge.findings.finding import State
from gpu_triage_simulator import Expectation, list_scenarios, load_scenario

pytestmark = pytest.mark.slow

SECONDS = 30.0

MOMENTS = [
    (summary.name, expectation)
    for summary in list_scenarios()
    for expectation in load_scenario(summary.name).expectations
    if summary.name != "training-day"  # Half a minute of a job that pauses does not tell what it does else.
]

BEHIND_THE_DAEMON = {
    ("moved-slot", 3900, "0"): "only the baseline that the exporter recorded knows that this slot is not the card's own"
}
"""GPUs whose link only looks short to an exporter that knew the host before."""

OUTLASTS_ITS_CAUSE = {
    ("dual-a10", 5820): (
        "what nobody can observe on a lost GPU has not ended",
        {"GpuNumaMismatch", "GpuPcieWidthDowntrained", "GpuSwThermalThrottling"},
    ),
    **{
        ("h100-8-bad-night", at): (
            "heat is over for less than its hold",
            {"GpuHwThermalThrottling", "GpuStraggler", "GpuTemperatureNearSlowdown"},
        )
        for at in (2820, 3180)
    },
}
"""Alerts that still fire at a moment though a look finds nothing any more, and why."""

JUDGED_BY_PROMETHEUS = {alert.name for source in shipped_sources() for alert in source.alerts if not alert.codes}
NEED_MORE_THAN_A_LOOK = {
    "GpuEccCorrectedRising": "a day of counts",
    "GpuHostMemoryErrorsRising": "a day of counts",
    "GpuHungProcess": "what the GPU did before",
    "GpuHostTaskHung": "a minute in which a thread does not run",
    "GpuAllocatedIdle": "hours",
    "GpuCollectiveHang": "the traffic of all GPUs over minutes",
    "GpuInfinibandPortDown": "that the port was up before",
}
"""Alerts whose findings only the daemon makes, and what they need."""


def unheard(scenario: str, expectation: Expectation) -> set[str]:
    """Alerts of which a look at this moment cannot know."""
    behind = any((name, at) == (scenario, expectation.at) for name, at, _ in BEHIND_THE_DAEMON)
    _, over = OUTLASTS_ITS_CAUSE.get((scenario, expectation.at), ("", set()))
    return (
        JUDGED_BY_PROMETHEUS
        | set(NEED_MORE_THAN_A_LOOK)
        | over
        | ({"GpuPcieWidthDowntrained", "GpuBaselineDrift"} if behind else set())
    )


def alert_names(expectation: Expectation) -> set[str]:
    return {alert.partition("{")[0] for alert in expectation.alerts}


@pytest.mark.parametrize(
    ("scenario", "expectation"),
    [
        pytest.param(
            name,
            expectation,
            id=f"{name}-{expectation.at // 60}m",
            # The night takes longer than all others together, and has no topic of its own.
            marks=[] if expectation.findings and name != "h100-8-bad-night" else pytest.mark.full,
        )
        for name, expectation in MOMENTS
    ],
)
def test_check_finds_what_the_scenario_expects_and_names_the_bottlenecks_of_the_daemon(
    scenario: str, expectation: Expectation
) -> None:
    report = look_at(load_scenario(scenario), expectation.at, seconds=SECONDS)
    behind = {gpu for name, at, gpu in BEHIND_THE_DAEMON if (name, at) == (scenario, expectation.at)}
    for subject, topics in expectation.findings.items():
        gpu_labels = "host" if subject == "host" else f"GPU {subject}"
        unseen = {"pcie_link"} if subject in behind else set()
        assert set(topics) - unseen <= {f.check.topic for f in report.findings if f.subject == gpu_labels}, gpu_labels
    seen = {finding.check.alert for finding in report.findings}
    assert alert_names(expectation) - unheard(scenario, expectation) <= seen
    if expectation.quiet:
        # GPUs without direct access are context, without an alert.
        assert {each.check.code for each in report.findings} <= {"p2p.through_host"}
    classes = {gpu.gpu: gpu.bottleneck.name for gpu in report.gpus}
    for gpu, expected in expectation.bottleneck.items():
        assert classes[gpu] == expected, f"GPU {gpu}"
    confirmed = {f.check.alert for f in report.findings if f.check.alert is not None and f.state is State.CONFIRMED}
    assert confirmed <= alert_names(expectation), "nothing is confirmed that no alert says"
