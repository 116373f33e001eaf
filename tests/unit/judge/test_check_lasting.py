"""How `gpu-triage check` tells findings that are pending, confirmed and ended apart."""

import json
from dataclasses import replace

import pytest
from click import unstyle
from tests.one_shot import look_at, with_life

from gpu_triage.judge.findings.finding import Finding, State
from gpu_triage.judge.findings.table import BY_CODE
from gpu_triage.judge.report.machine_readable import render_json
from gpu_triage.judge.report.report import Report
from gpu_triage.judge.report.text import render_text
from gpu_triage_simulator import load_scenario

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ailing() -> Report:
    return look_at(load_scenario("dual-a10"), 3600)


@pytest.mark.parametrize(
    ("life", "said"),
    [
        (
            {"since": 1.0, "lasted_seconds": 40.0},
            "warning pcie.width  GPU 0: {} (has lasted 40 s of 10 min; then critical: take it out of use)",
        ),
        (
            {"since": 1.0, "lasted_seconds": 40.0, "holds": None},
            (
                "warning pcie.width  GPU 0: {} "
                "(has lasted 40 s of 10 min; then critical: take it out of use; cannot be observed now)"
            ),
        ),
        ({"state": State.CONFIRMED, "lasted_seconds": 700.0}, "critical pcie.width  GPU 0: {}"),
        (
            {"state": State.CONFIRMED, "holds": False, "quiet_seconds": 180.0},
            "warning pcie.width  GPU 0: {} (gone for 3 min, ends after 25 min)",
        ),
    ],
)
def test_a_finding_says_where_it_stands(ailing: Report, life: dict[str, object], said: str) -> None:
    lines = [line.strip() for line in unstyle(render_text(with_life(ailing, "pcie.width", **life))).splitlines()]
    assert said.format("8 of 16 lanes under load, at 0000:65:00.0") in lines


def test_what_ended_lately_is_listed_apart(ailing: Report) -> None:
    over = Finding(BY_CODE["thermal.hw"], "hot", "1", "GPU-b", value=0.25, state=State.ENDED, ended_at=5.0, end="gone")
    document = json.loads(render_json(replace(ailing, ended=(over,))))
    (ended,) = document["ended"]
    assert "thermal.hw" not in {each["code"] for each in document["findings"]}
    assert (ended["state"], ended["ended_at"], ended["end"], ended["value"]) == ("ended", 5, "gone", 0.25)
    assert set(ended) == set(document["findings"][0])
