"""Pages for operators name the metrics, options, rights and reasons that exist, and the sizes of a scrape."""

import re
from collections import defaultdict
from pathlib import Path

import pytest
from tests.bench.scale import OPENMETRICS, scaled
from tests.parts import some
from tests.rig import rig

from gpu_triage.driver.nvml.nvml_errors import NAMES
from gpu_triage.options.config import Config
from gpu_triage.options.option_table import all_options
from gpu_triage.read.exporter.flight_recorder import FLIGHT_RECORDER
from gpu_triage.read.host.access import PROBES
from gpu_triage.read.incidents.incident_metrics import INCIDENTS
from gpu_triage.read.registry import ALL_COLLECTORS, COLLECTOR_SWITCHES
from gpu_triage.sampler.driver import RELEASED, STALLED
from gpu_triage_simulator import load_scenario

METRIC = re.compile(r"`(?:rate\()?(gpu_[a-z0-9_]+)(?:\{([^}]*)\})?")
MATCHER = re.compile(r'(\w+)="([^"]*)"')
OWN_REASONS = {"library_not_found", "library_invalid", "malformed", "error_", "exception", STALLED, RELEASED}

OF_OTHERS = {"http.config.file", "storage.tsdb.retention.size"}
"""Options of gpu-triage fleet and of Prometheus."""


@pytest.fixture
def docs(repository: Path) -> Path:
    return repository / "docs"


def _table(page: Path, heading: str = "# ") -> list[list[str]]:
    section = page.read_text(encoding="utf-8").split(f"{heading}", 1)[1].split("\n## ", 1)[0]
    rows = [line.strip("|").split("|") for line in section.splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in row] for row in rows[1:]]


def test_every_feature_that_can_lack_a_right_is_in_the_table_of_rights(docs: Path) -> None:
    named = {name for row in _table(docs / "rights.md") for name in re.findall(r"\(`(\w+)`\)", row[0])}
    everything = Config(
        collectors={"process_memory_locality": True},
        collector_textfile_directory=Path("/jobs"),
        kubernetes_pod_resources_socket=Path("/kubelet.sock"),
        slurm_jobs_directory=Path("/slurm-jobs"),
        kubernetes_container_logs=Path("/containers"),
        state_directory=Path("/state"),
    )
    assert named == {probe.feature for probe in PROBES if probe.wanted(everything)}


def test_what_one_migrates_to_is_published_with_those_values_and_each_metric_once(docs: Path, repository: Path) -> None:
    series = defaultdict(list)
    for path in (repository / "tests/golden").glob("*.prom"):
        for line in path.read_text(encoding="utf-8").splitlines():
            series[re.split("[{ ]", line, maxsplit=1)[0]].append(line)
    names = (docs / "dcgm.md").read_text(encoding="utf-8").split("### Names\n", 1)[1]
    rows = re.findall(r"^- (.+): (.+)$", names, re.MULTILINE)
    theirs = [name for row in rows for name in re.findall(r"`(\w+)`", row[0])]
    assert len(set(theirs)) == len(theirs) > 80
    assert [name for name in theirs if name.startswith("gpu_")] == []
    targets = [target for row in rows for target in METRIC.findall(row[1])]
    assert len(rows) > 50
    assert len(targets) >= len(rows)
    for name, matchers in targets:
        wanted = [f'{label}="{value}"' for label, value in MATCHER.findall(matchers)]
        assert any(all(matcher in line for matcher in wanted) for line in series[name]), (name, matchers)


def test_every_reason_for_a_driver_that_does_not_answer_is_explained(repository: Path) -> None:
    page = repository / "exporter/gpu_triage/serve/handbook/runbooks/GpuDriverUnavailable.md"
    meaning = page.read_text(encoding="utf-8").split("## Meaning\n")[1].split("\n## ")[0]
    listed = re.findall(r"(?:^- |\. )(`.+?): ", meaning, re.MULTILINE | re.DOTALL)
    assert {reason for names in listed for reason in re.findall(r"`(\w+)`", names)} == set(NAMES.values()) | OWN_REASONS


def test_every_option_and_collector_that_hand_written_pages_name_exists(docs: Path) -> None:
    generated = ("METRICS.md", "benchmarks.md", "architecture.md", "configuration.md")
    pages = (page.read_text(encoding="utf-8") for page in sorted(docs.glob("*.md")) if page.name not in generated)
    prose = "\n".join("".join(page.split("```")[0::2]) for page in pages)  # apart from commands and files
    flags = set(re.findall(r"`--(?:no-)?([a-z]+\.[\w.-]+\w)", prose))
    assert len(flags) > 8
    assert flags - {option.key for option in all_options(COLLECTOR_SWITCHES)} == OF_OTHERS
    named = set(re.findall(r'collector="(\w+)"', prose))
    assert len(named) > 2
    assert named <= {INCIDENTS.name, FLIGHT_RECORDER.name, *(collector.name for collector in ALL_COLLECTORS)}


COLUMNS = {1: 0, 8: 1, 16: 2}
"""GPUs by column of the table."""
SETTLED_SECONDS = 10
TOLERANCE = 0.03


def _row(page: str, head: str) -> list[float]:
    (row,) = re.findall(rf"^\| {head}[^|]*\|(.*)\|$", page, re.MULTILINE)
    return [float(re.sub(r"[^\d.]", "", cell)) for cell in row.split("|")]


@pytest.mark.parametrize("gpus", some(COLUMNS, (1, 8)))
def test_a_scrape_has_the_documented_size(repository: Path, gpus: int) -> None:
    text = (repository / "docs/operations.md").read_text(encoding="utf-8")
    with rig(scaled(load_scenario("h100-8"), gpus, 8 * gpus)) as running:
        running.run(SETTLED_SECONDS)
        page = running.page()
        packed = running.exposition.page(OPENMETRICS, (), gzipped=True)
    series = sum(not line.startswith("#") for line in page.splitlines())
    column = COLUMNS[gpus]
    assert _row(text, "series, with eight processes per GPU")[column] == pytest.approx(series, rel=TOLERANCE)
    assert _row(text, "scrape size, uncompressed")[column] == pytest.approx(len(page) / 1024, rel=TOLERANCE)
    if gpus == 8:
        (kibibytes,) = re.findall(r"a scrape is (\d+) KiB with gzip", text)
        assert int(kibibytes) == pytest.approx(len(packed.body) / 1024, rel=2 * TOLERANCE)
