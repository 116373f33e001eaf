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
    ("h100-8-bad-night", 1800, "5"): "the lanes are gone for 10 minutes, the rules wait for 15",
}
"""GPUs whose bottleneck a short watch rightly sees otherwise than the rules do with their windows."""

HEAD = """# Check and alerts agree

Written by `pytest tests/unit/test_check_agreement.py --regenerate`: for every moment at which a simulated host says
what must be seen, the alerts that fire then and what `gpu-triage check` finds in {watch:.0f} seconds that end there.
Alerts that need more than a watch (a history, a baseline, other hosts) are in *italics*.

| Scenario | At | Alerts | Bottlenecks | Findings |
|---|---|---|---|---|
"""


@pytest.fixture(scope="module")
def reports() -> dict[str, Report]:
    return {
        name: look_at(load_scenario(scenario), expectation.at, watch_seconds=WATCH_SECONDS)
        for name, (scenario, expectation) in zip(IDS, MOMENTS, strict=True)
    }


def alert_names(expectation: Expectation) -> set[str]:
    return {alert.partition("{")[0] for alert in expectation.alerts}


@pytest.mark.parametrize(("scenario", "expectation"), MOMENTS, ids=IDS)
def test_check_finds_what_the_scenario_expects(
    scenario: str, expectation: Expectation, reports: dict[str, Report]
) -> None:
    report = reports[f"{scenario}-{expectation.at // 60}m"]
    for subject, topics in expectation.findings.items():
        whose = "host" if subject == "host" else f"GPU {subject}"
        assert set(topics) <= {f.check.topic for f in report.findings if f.subject == whose}, whose
    seen = {finding.check.alert for finding in report.findings}
    assert alert_names(expectation) - set(NEED_MORE_THAN_A_WATCH) <= seen
    if expectation.quiet:
        assert report.findings == ()


@pytest.mark.parametrize(("scenario", "expectation"), MOMENTS, ids=IDS)
def test_check_and_rules_name_the_same_bottleneck(
    scenario: str, expectation: Expectation, reports: dict[str, Report]
) -> None:
    report = reports[f"{scenario}-{expectation.at // 60}m"]
    classes = {gpu.gpu: gpu.bottleneck.name for gpu in report.gpus}
    exempt = {gpu for name, at, gpu in AHEAD_OF_THE_RULES if (name, at) == (scenario, expectation.at)}
    for gpu, expected in expectation.bottleneck.items():
        assert (classes[gpu] == expected) is (gpu not in exempt), f"GPU {gpu}: {classes[gpu]}, expected {expected}"


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
    alerts = [f"*{name}*" if name in NEED_MORE_THAN_A_WATCH else name for name in sorted(alert_names(expectation))]
    bottlenecks: dict[str, list[str]] = {}
    for gpu in report.gpus:
        bottlenecks.setdefault(gpu.bottleneck.name, []).append(gpu.gpu)
    classes = [f"{name}: {', '.join(gpus)}" for name, gpus in bottlenecks.items()]
    found: dict[str, list[str]] = {}
    for finding in report.findings:
        found.setdefault(finding.subject, []).append(f"`{finding.check.code}`")
    findings = [f"{subject}: {' '.join(codes)}" for subject, codes in found.items()]
    cells = (
        scenario,
        f"{expectation.at // 60} min",
        ", ".join(alerts) or "none",
        "; ".join(classes) or "none",
        "; ".join(findings) or "none",
    )
    return f"| {' | '.join(cells)} |\n"
