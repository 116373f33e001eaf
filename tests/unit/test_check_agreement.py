"""What `gpu-triage check` finds, beside what the alert rules say of the same moment of the same scenario."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.looking import look_at
from tests.unit.test_check_codes import NEED_MORE_THAN_A_WATCH

from gpu_triage.simulator import list_scenarios, load_scenario

if TYPE_CHECKING:
    from pathlib import Path

    from gpu_triage.diagnosis.report import Report
    from gpu_triage.simulator import Expectation

WATCH_SECONDS = 30.0
MOMENTS = [
    (summary.name, expectation)
    for summary in list_scenarios()
    for expectation in load_scenario(summary.name).expectations
]
IDS = [f"{name}-{expectation.at // 60}m" for name, expectation in MOMENTS]

AHEAD_OF_THE_RULES = {
    ("h100-8-bad-night", 1980, "5"): "the lanes are gone for 13 minutes, the rules wait for 15",
}
"""GPUs whose bottleneck a short watch rightly sees otherwise than the rules do with their windows."""

BEHIND_THE_RULES = {
    (
        "moved-slot",
        3900,
        "0",
    ): "only the baseline that the exporter recorded knows that this slot is not the card's own",
}
"""GPUs whose link only looks short to an exporter that knew the host before."""

SOONER_THAN_THE_RULES = {
    "GpuPcieWidthDowntrained": "the rule waits for 15 minutes of a link that is too narrow",
    "GpuPcieReplaysRising": "the rule waits for 15 minutes of replays",
    "GpuPcieAerErrors": "the rule waits for 15 minutes of errors",
    "GpuStarvedByStorage": "the rule waits for 20 minutes of starving",
}
"""Alerts whose finding a look may make while the rule still waits, and why it waits."""

HEAD = """# Check and alerts agree

Written by `pytest tests/unit/test_check_agreement.py --regenerate`: for every moment at which a simulated host says
what must be seen, the alerts that fire then and what `gpu-triage check` finds in {watch:.0f} seconds that end there.
Alerts that need more than a watch (a history, a baseline, other hosts) are in *italics*.

The alerts are those that the scenario expects; `tests/rules/test_scenarios.py` runs each scenario through the rules in
promtool and fails unless exactly these fire. `tests/e2e/test_status_page_in_browser.py` holds the status page and
`/api/v1/verdict` to what the check finds at the same moments. A finding whose alert does not fire yet is **bold**: a
look takes half a minute where a rule waits, so that nobody is paged for what passes.

| Scenario | At | Alerts | Bottlenecks | Findings |
|---|---|---|---|---|
"""


@pytest.fixture(scope="module")
def reports() -> dict[str, Report]:
    return {
        name: look_at(load_scenario(scenario), expectation.at, watch_seconds=WATCH_SECONDS)
        for name, (scenario, expectation) in zip(IDS, MOMENTS, strict=True)
    }


def unheard(scenario: str, expectation: Expectation) -> set[str]:
    """Alerts of which a look at this moment cannot know."""
    behind = any((name, at) == (scenario, expectation.at) for name, at, _ in BEHIND_THE_RULES)
    return set(NEED_MORE_THAN_A_WATCH) | ({"GpuPcieWidthDowntrained", "GpuBaselineDrift"} if behind else set())


def alert_names(expectation: Expectation) -> set[str]:
    return {alert.partition("{")[0] for alert in expectation.alerts}


@pytest.mark.parametrize(("scenario", "expectation"), MOMENTS, ids=IDS)
def test_check_finds_what_the_scenario_expects(
    scenario: str, expectation: Expectation, reports: dict[str, Report]
) -> None:
    report = reports[f"{scenario}-{expectation.at // 60}m"]
    behind = {gpu for name, at, gpu in BEHIND_THE_RULES if (name, at) == (scenario, expectation.at)}
    for subject, topics in expectation.findings.items():
        whose = "host" if subject == "host" else f"GPU {subject}"
        unseen = {"pcie_link"} if subject in behind else set()
        assert set(topics) - unseen <= {f.check.topic for f in report.findings if f.subject == whose}, whose
    seen = {finding.check.alert for finding in report.findings}
    assert alert_names(expectation) - unheard(scenario, expectation) <= seen
    if expectation.quiet:
        assert report.findings == ()


@pytest.mark.parametrize(("scenario", "expectation"), MOMENTS, ids=IDS)
def test_check_and_rules_name_the_same_bottleneck(
    scenario: str, expectation: Expectation, reports: dict[str, Report]
) -> None:
    report = reports[f"{scenario}-{expectation.at // 60}m"]
    classes = {gpu.gpu: gpu.bottleneck.name for gpu in report.gpus}
    exempt = {
        gpu for name, at, gpu in (*AHEAD_OF_THE_RULES, *BEHIND_THE_RULES) if (name, at) == (scenario, expectation.at)
    }
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


def test_the_table_of_agreement_is_up_to_date(
    reports: dict[str, Report], repository: Path, request: pytest.FixtureRequest
) -> None:
    rows = [row(name, expectation, reports[key]) for key, (name, expectation) in zip(IDS, MOMENTS, strict=True)]
    page = HEAD.format(watch=WATCH_SECONDS) + "".join(rows)
    path = repository / "docs/agreement.md"
    if request.config.getoption("--regenerate"):
        path.write_text(page)
    assert path.read_text() == page


def row(scenario: str, expectation: Expectation, report: Report) -> str:
    unknown = unheard(scenario, expectation)
    alerts = [f"*{name}*" if name in unknown else name for name in sorted(alert_names(expectation))]
    bottlenecks: dict[str, list[str]] = {}
    for gpu in report.gpus:
        bottlenecks.setdefault(gpu.bottleneck.name, []).append(gpu.gpu)
    classes = [f"{name}: {', '.join(gpus)}" for name, gpus in bottlenecks.items()]
    found: dict[str, list[str]] = {}
    for finding in report.findings:
        early = finding.check.alert is not None and finding.check.alert not in alert_names(expectation)
        code = f"`{finding.check.code}`"
        found.setdefault(finding.subject, []).append(f"**{code}**" if early else code)
    findings = [f"{subject}: {' '.join(codes)}" for subject, codes in found.items()]
    cells = (
        scenario,
        f"{expectation.at // 60} min",
        ", ".join(alerts) or "none",
        "; ".join(classes) or "none",
        "; ".join(findings) or "none",
    )
    return f"| {' | '.join(cells)} |\n"
