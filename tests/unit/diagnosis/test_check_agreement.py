"""What `gpu-triage check` finds, beside what the alert rules say of the same moment of the same scenario."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.one_shot import look_at
from tests.unit.diagnosis.test_check_codes import NEED_MORE_THAN_A_WATCH

from gpu_triage.simulator import list_scenarios, load_scenario

if TYPE_CHECKING:
    from gpu_triage.diagnosis.report.report import Report
    from gpu_triage.simulator import Expectation

pytestmark = pytest.mark.slow

SECONDS = 30.0
PAUSES = {"training-day": "half a minute of a job that pauses does not tell what it does else"}
"""Scenarios of which one look sees too little, whatever it says."""

MOMENTS = [
    (summary.name, expectation)
    for summary in list_scenarios()
    for expectation in load_scenario(summary.name).expectations
    if summary.name not in PAUSES
]
IDS = [f"{name}-{expectation.at // 60}m" for name, expectation in MOMENTS]

BEHIND_THE_DAEMON = {
    (
        "moved-slot",
        3900,
        "0",
    ): "only the baseline that the exporter recorded knows that this slot is not the card's own",
}
"""GPUs whose link only looks short to an exporter that knew the host before."""

OUTLASTS_ITS_CAUSE = {
    ("dual-a10", 5820): {"GpuPcieWidthDowntrained": "the page goes on for 25 minutes after the link that it was about"},
}
"""Alerts that still fire at a moment though nothing is to be found any more, and why."""

SOONER_THAN_THE_RULES = {
    "GpuPcieWidthDowntrained": "the rule waits for 15 minutes of a link that is too narrow",
    "GpuPcieReplaysRising": "the rule waits for 15 minutes of replays",
    "GpuPcieAerErrors": "the rule waits for 15 minutes of errors",
    "GpuStarvedByStorage": "the rule waits for 20 minutes of starving",
}
"""Alerts whose finding a look may make while the rule still waits, and why it waits."""


@pytest.fixture(scope="module")
def reports() -> dict[str, Report]:
    return {
        name: look_at(load_scenario(scenario), expectation.at, seconds=SECONDS)
        for name, (scenario, expectation) in zip(IDS, MOMENTS, strict=True)
    }


def unheard(scenario: str, expectation: Expectation) -> set[str]:
    """Alerts of which a look at this moment cannot know."""
    behind = any((name, at) == (scenario, expectation.at) for name, at, _ in BEHIND_THE_DAEMON)
    over = OUTLASTS_ITS_CAUSE.get((scenario, expectation.at), {})
    return (
        set(NEED_MORE_THAN_A_WATCH) | set(over) | ({"GpuPcieWidthDowntrained", "GpuBaselineDrift"} if behind else set())
    )


def alert_names(expectation: Expectation) -> set[str]:
    return {alert.partition("{")[0] for alert in expectation.alerts}


@pytest.mark.parametrize(("scenario", "expectation"), MOMENTS, ids=IDS)
def test_check_finds_what_the_scenario_expects(
    scenario: str, expectation: Expectation, reports: dict[str, Report]
) -> None:
    report = reports[f"{scenario}-{expectation.at // 60}m"]
    behind = {gpu for name, at, gpu in BEHIND_THE_DAEMON if (name, at) == (scenario, expectation.at)}
    for subject, topics in expectation.findings.items():
        whose = "host" if subject == "host" else f"GPU {subject}"
        unseen = {"pcie_link"} if subject in behind else set()
        assert set(topics) - unseen <= {f.check.topic for f in report.findings if f.subject == whose}, whose
    seen = {finding.check.alert for finding in report.findings}
    assert alert_names(expectation) - unheard(scenario, expectation) <= seen
    if expectation.quiet:
        assert report.findings == ()


@pytest.mark.parametrize(("scenario", "expectation"), MOMENTS, ids=IDS)
def test_check_and_daemon_name_the_same_bottleneck(
    scenario: str, expectation: Expectation, reports: dict[str, Report]
) -> None:
    report = reports[f"{scenario}-{expectation.at // 60}m"]
    classes = {gpu.gpu: gpu.bottleneck.name for gpu in report.gpus}
    exempt = {gpu for name, at, gpu in BEHIND_THE_DAEMON if (name, at) == (scenario, expectation.at)}
    for gpu, expected in expectation.bottleneck.items():
        assert (classes[gpu] == expected) is (gpu not in exempt), f"GPU {gpu}: {classes[gpu]}, expected {expected}"


@pytest.mark.parametrize(("scenario", "expectation"), MOMENTS, ids=IDS)
def test_check_finds_nothing_that_the_rules_do_not_say_now_or_after_their_wait(
    scenario: str, expectation: Expectation, reports: dict[str, Report]
) -> None:
    report = reports[f"{scenario}-{expectation.at // 60}m"]
    early = {f.check.alert for f in report.findings if f.check.alert is not None} - alert_names(expectation)
    assert early <= set(SOONER_THAN_THE_RULES)


def test_every_alert_that_a_look_may_be_ahead_of_is_one_it_is_ahead_of(reports: dict[str, Report]) -> None:
    early = {
        finding.check.alert
        for key, (_, expectation) in zip(IDS, MOMENTS, strict=True)
        for finding in reports[key].findings
        if finding.check.alert not in alert_names(expectation)
    }
    assert set(SOONER_THAN_THE_RULES) <= early
