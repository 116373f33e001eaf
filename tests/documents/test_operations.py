"""docs/operations.md names metrics that exist and every reason for which the driver may not answer."""

from __future__ import annotations

import re
from collections import defaultdict
from pathlib import Path

import pytest

from gpu_triage.driver.nvml.nvml_errors import NAMES
from gpu_triage.options.config import Config
from gpu_triage.options.option_table import all_options
from gpu_triage.read.exporter import flight_recorder
from gpu_triage.read.host.access import wanted
from gpu_triage.read.incidents import incident_metrics as incidents
from gpu_triage.read.registry import ALL_COLLECTORS, COLLECTOR_SWITCHES, METRICS
from gpu_triage.sampler.driver import RELEASED, STALLED

METRIC = re.compile(r"`(?:rate\()?(gpu_[a-z0-9_]+)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)="([^"]*)"')
OWN_REASONS = {"library_not_found", "library_invalid", "malformed", "error_", "exception", STALLED, RELEASED}


@pytest.fixture
def page(repository: Path) -> str:
    return (repository / "docs" / "operations.md").read_text(encoding="utf-8")


def _table(page: str, heading: str) -> list[list[str]]:
    section = page.split(f"{heading}\n", 1)[1].split("\n## ", 1)[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row] for row in rows[1:]]


def test_every_metric_it_names_exists_with_those_labels(page: str) -> None:
    labels = {spec.name: set(spec.labels) for spec in METRICS}
    named = [(name, {label for label, _ in MATCHER.findall(matchers)}) for name, matchers in METRIC.findall(page)]
    assert len(named) > 60
    assert [name for name, matched in named if not name.endswith("_") and not matched <= labels.get(name, {"?"})] == []
    families = [name for name, _ in named if name.endswith("_")]
    assert [family for family in families if not any(name.startswith(family) for name in labels)] == []


def test_every_collector_it_names_exists(page: str) -> None:
    named = set(re.findall(r'collector="(\w+)"', page))
    assert len(named) > 2
    assert named <= {incidents.NAME, flight_recorder.NAME, *(collector.name for collector in ALL_COLLECTORS)}


def test_every_feature_that_can_lack_a_right_is_in_the_table_of_rights(page: str) -> None:
    named = {name for row in _table(page, "## Rights") for name in re.findall(r"\(`(\w+)`\)", row[0])}
    everything = Config(
        collectors={"process_memory_locality": True},
        collector_textfile_directory=Path("/jobs"),
        kubernetes_pod_resources_socket=Path("/kubelet.sock"),
        slurm_jobs_directory=Path("/slurm-jobs"),
        kubernetes_container_logs=Path("/containers"),
        state_directory=Path("/state"),
    )
    assert named == wanted(everything).features


def test_what_one_migrates_to_is_published_with_those_values(page: str, repository: Path) -> None:
    series = defaultdict(list)
    for path in (repository / "tests/golden").glob("*.prom"):
        for line in path.read_text(encoding="utf-8").splitlines():
            series[re.split("[{ ]", line, maxsplit=1)[0]].append(line)
    rows = _table(page, "## Migrating")
    targets = [target for row in rows for target in METRIC.findall(row[2])]
    assert len(rows) > 50
    assert len(targets) >= len(rows)
    for name, matchers in targets:
        wanted = [f'{label}="{value}"' for label, value in MATCHER.findall(matchers)]
        assert any(all(matcher in line for matcher in wanted) for line in series[name]), (name, matchers)


def test_a_metric_of_another_exporter_is_migrated_once(page: str) -> None:
    theirs = [name for row in _table(page, "## Migrating") for cell in row[:2] for name in re.findall(r"`(\w+)`", cell)]
    assert len(theirs) > 80
    assert len(set(theirs)) == len(theirs)
    assert [name for name in theirs if name.startswith("gpu_")] == []


def test_every_reason_for_a_driver_that_does_not_answer_is_explained(page: str) -> None:
    explained = {
        reason for row in _table(page, "### gpu_driver_error_info") for reason in re.findall(r"`(\w+)`", row[0])
    }
    assert explained - {"error"} == set(NAMES.values()) | OWN_REASONS


def test_every_option_it_names_exists(page: str) -> None:
    ours = page.split("```")[0::2]
    flags = {flag for text in ours for flag in re.findall(r"`--([a-z][\w.-]+)", text)}
    known = {option.flag.removeprefix("--") for option in all_options(COLLECTOR_SWITCHES)}
    known |= {option.negative_flag.removeprefix("--") for option in all_options(COLLECTOR_SWITCHES) if option.on_off}
    assert len(flags) > 8
    assert flags - known == {"health-cmd", "gpus"}, "Docker's own"
