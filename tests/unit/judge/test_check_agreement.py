"""What `gpu-triage check` finds at the moments of which a scenario says what its host has."""

import pytest
from tests.one_shot import look_at

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
    if expectation.quiet:
        # GPUs without direct access are context, without an alert.
        assert {each.check.code for each in report.findings} <= {"p2p.through_host"}
    classes = {gpu.gpu: gpu.bottleneck.name for gpu in report.gpus}
    for gpu, expected in expectation.bottleneck.items():
        assert classes[gpu] == expected, f"GPU {gpu}"
    alerts = {alert.partition("{")[0] for alert in expectation.alerts}
    confirmed = {f.check.alert for f in report.findings if f.check.alert is not None and f.state is State.CONFIRMED}
    assert confirmed <= alerts, "nothing is confirmed that no alert says"
