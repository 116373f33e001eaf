"""What rules/compat/dcgm.yml makes of a page of dcgm-exporter, without an exporter of ours and beside one."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from tests.conftest import RequiresTool
from tests.gathered import for_each
from tests.rules.dcgm_page import DCGM, PAGE, can_fire, page, sources
from tests.rules.expressions import windows_matched_as_one
from tests.rules.promtool import Run, Sample, ask, selector
from tests.rules.rulefile import REPOSITORY, Rule, alerts, read_rules, rule_files

from gpu_triage.registry import METRICS

pytestmark = pytest.mark.slow

RULES = read_rules([DCGM])
RECORDING = REPOSITORY / "rules" / "recording.yml"
STEP_SECONDS = 30
STEPS = 80
END = STEPS * STEP_SECONDS * 1.0
CHANGE = 40
"""Step at which something happens."""

UUID = "GPU-604ac76c-d9cf-fef3-62e9-d92044ab6e52"
OTHER = "GPU-0123abcd-0000-1111-2222-333344445555"
BOARD = (
    f'gpu="0",UUID="{UUID}",pci_bus_id="00000000:65:00.0",device="nvidia0",modelName="NVIDIA A100-SXM4-80GB",'
    'Hostname="gpu-7",DCGM_FI_DRIVER_VERSION="535.104.05",container="main",namespace="ml",pod="train-0"'
)
"""Labels as the documentation of dcgm-exporter shows them."""

PAGE_TEXT = f"""\
# HELP DCGM_FI_DEV_SM_CLOCK SM clock frequency (in MHz).
# TYPE DCGM_FI_DEV_SM_CLOCK gauge
DCGM_FI_DEV_SM_CLOCK{{{BOARD}}} 1410
# TYPE DCGM_FI_DEV_MEM_CLOCK gauge
DCGM_FI_DEV_MEM_CLOCK{{{BOARD}}} 1593
# TYPE DCGM_FI_DEV_MEMORY_TEMP gauge
DCGM_FI_DEV_MEMORY_TEMP{{{BOARD}}} 9223372036854775794
# TYPE DCGM_FI_DEV_GPU_TEMP gauge
DCGM_FI_DEV_GPU_TEMP{{{BOARD}}} 61
# TYPE DCGM_FI_DEV_POWER_USAGE gauge
DCGM_FI_DEV_POWER_USAGE{{{BOARD}}} 317.442
# TYPE DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION counter
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{{BOARD}}} 1293188223
# TYPE DCGM_FI_DEV_PCIE_REPLAY_COUNTER counter
DCGM_FI_DEV_PCIE_REPLAY_COUNTER{{{BOARD}}} 0
# TYPE DCGM_FI_DEV_GPU_UTIL gauge
DCGM_FI_DEV_GPU_UTIL{{{BOARD}}} 93
# TYPE DCGM_FI_DEV_XID_ERRORS gauge
DCGM_FI_DEV_XID_ERRORS{{{BOARD},err_code="0",err_msg="No Error"}} 0
# TYPE DCGM_FI_DEV_FB_USED gauge
DCGM_FI_DEV_FB_USED{{{BOARD}}} 70112
# TYPE DCGM_FI_DEV_ROW_REMAP_FAILURE gauge
DCGM_FI_DEV_ROW_REMAP_FAILURE{{{BOARD}}} 0
# TYPE DCGM_FI_DEV_ECC_DBE_VOL_TOTAL counter
DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{{{BOARD}}} 0
# TYPE DCGM_FI_PROF_PIPE_TENSOR_ACTIVE gauge
DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{{{BOARD}}} 0.41
# TYPE DCGM_FI_PROF_DRAM_ACTIVE gauge
DCGM_FI_PROF_DRAM_ACTIVE{{{BOARD}}} 0.37
# TYPE DCGM_FI_PROF_SM_ACTIVE gauge
DCGM_FI_PROF_SM_ACTIVE{{{BOARD}}} 0.88
DCGM_FI_PROF_SM_ACTIVE{{{BOARD},GPU_I_PROFILE="1g.10gb",GPU_I_ID="7"}} 0.11
"""
TARGET = {"job": "dcgm-exporter", "instance": "10.1.2.3:9400", "workload": "training"}
OURS = {"job": "gpu-triage", "instance": "gpu-7:9836", "gpu": "0", "uuid": UUID}
RECORDED = {"gpu": "0", "uuid": UUID, "recorded_from": "dcgm", **TARGET}

Series = Mapping[str, Sequence[float]]


def scraped(**changes: tuple[float, float]) -> dict[str, list[float]]:
    """The page, scraped every step; `changes` are values of a field before and after CHANGE."""
    return dict(_scraped(changes))


def _scraped(changes: Mapping[str, tuple[float, float]]) -> Iterator[tuple[str, list[float]]]:
    for family in text_string_to_metric_families(PAGE_TEXT):
        for sample in family.samples:
            # Scraped as they are, counters have no suffix of ours.
            name = sample.name.removesuffix("_total")
            before, after = changes.get(name, (sample.value, sample.value))
            values = [before] * CHANGE + [after] * (STEPS + 1 - CHANGE)
            yield selector(name, {**sample.labels, **TARGET}.items()), values


def ours(metric: str, value: float, **labels: str) -> dict[str, list[float]]:
    return {selector(metric, {**OURS, **labels}.items()): [value] * (STEPS + 1)}


class Prometheus:
    """Asks the rules."""

    def __init__(self, promtool: Path, directory: Path) -> None:
        self._promtool = promtool
        self._directory = directory

    def __call__(self, question: str, series: Series) -> tuple[Sample, ...]:
        """The answer to a question at the end."""
        return self.answers((question,), series)[question]

    def answers(self, questions: Iterable[str], series: Series) -> dict[str, tuple[Sample, ...]]:
        """The answers to several."""
        run = self._run((DCGM, RECORDING), series, questions=tuple((each, END) for each in questions))
        return {question: found for (question, _), found in ask(self._promtool, run, self._directory).samples.items()}

    def firing(self, series: Series, *steps: int) -> dict[int, set[str]]:
        """Names of the alerts that fire at these steps."""
        names = sorted({rule.name for rule in alerts(read_rules(rule_files()))} - {"GpuTriageWatchdog"})
        asked = tuple((name, step * STEP_SECONDS * 1.0) for name in names for step in steps)
        run = self._run((DCGM, *rule_files()), series, alerts=asked)
        answers = ask(self._promtool, run, self._directory).alerts
        firing: dict[int, set[str]] = {step: set() for step in steps}
        for (name, at), found in answers.items():
            if found:
                firing[round(at / STEP_SECONDS)].add(name)
        return firing

    def _run(
        self,
        files: tuple[Path, ...],
        series: Series,
        questions: tuple[tuple[str, float], ...] = (),
        alerts: tuple[tuple[str, float], ...] = (),
    ) -> Run:
        groups = tuple(dict.fromkeys(rule.group for rule in read_rules(files)))
        return Run(files, groups, STEP_SECONDS, series, questions, alerts)


@pytest.fixture
def prometheus(requires_tool: RequiresTool, tmp_path: Path) -> Prometheus:
    return Prometheus(requires_tool("promtool"), tmp_path)


VALUES = {
    'gpu_clock_hertz{clock="sm"}': 1410e6,
    'gpu_clock_hertz{clock="memory"}': 1593e6,
    'gpu_temperature_celsius{sensor="gpu"}': 61,
    "gpu_power_watts": 317.442,
    "gpu_energy_joules_total": 1293188.223,
    "gpu_pcie_replays_total": 0,
    "gpu_sm_utilization_ratio": 0.93,
    "gpu_memory_used_bytes": 70112 * 1048576,
    "gpu_row_remap_failure": 0,
    'gpu_ecc_volatile_errors_total{severity="uncorrected"}': 0,
    "gpu_tensor_active_ratio": 0.41,
    "gpu_dram_active_ratio": 0.37,
    "gpu_sm_active_ratio": 0.88,
    "gpu_up": 1,
    "instance_gpu:gpu_busy:ratio5m": 0.93,
}


def test_a_field_is_recorded_under_our_name_in_base_units(prometheus: Prometheus) -> None:
    answers = prometheus.answers(VALUES, scraped())
    for question, value in VALUES.items():
        [found] = answers[question]
        assert found.value == pytest.approx(value), question
        assert {**found.labels}.items() >= RECORDED.items(), question
        assert not {"UUID", "modelName", "pod", "namespace", "container", "pci_bus_id"} & found.labels.keys()


def test_a_value_that_means_unknown_is_not_recorded(prometheus: Prometheus) -> None:
    assert prometheus('gpu_temperature_celsius{sensor="memory"}', scraped()) == ()


def test_labels_become_facts(prometheus: Prometheus) -> None:
    [board] = prometheus("gpu_info", scraped())
    assert (board.labels["name"], board.labels["pci_bus_id"]) == ("NVIDIA A100-SXM4-80GB", "0000:65:00.0")
    [driver] = prometheus("gpu_driver_info", scraped())
    assert driver.labels["driver_version"] == "535.104.05"


def test_beside_our_exporter_only_activity_is_recorded_with_the_labels_of_ours(prometheus: Prometheus) -> None:
    series = scraped() | ours("gpu_up", 1)
    nothing = ("gpu_power_watts", 'gpu_up{recorded_from="dcgm"}', "gpu_info", "gpu_driver_info")
    answers = prometheus.answers(("gpu_tensor_active_ratio", *nothing), series)
    [found] = answers["gpu_tensor_active_ratio"]
    assert (found.value, found.labels) == (0.41, {**OURS, "recorded_from": "dcgm"})
    assert [question for question in nothing if answers[question]] == []


def test_what_our_exporter_says_itself_takes_precedence(prometheus: Prometheus) -> None:
    series = scraped() | ours("gpu_up", 1) | ours("gpu_sm_active_ratio", 0.9)
    [found] = prometheus("gpu_sm_active_ratio", series)
    assert (found.value, found.labels) == (0.9, OURS)


def test_a_gpu_that_does_not_answer_us_has_no_activity(prometheus: Prometheus) -> None:
    assert prometheus("gpu_tensor_active_ratio", scraped() | ours("gpu_up", 0)) == ()


def test_another_gpu_of_ours_takes_nothing_away(prometheus: Prometheus) -> None:
    [found] = prometheus("gpu_power_watts", scraped() | ours("gpu_up", 1, uuid=OTHER))
    assert found.labels["uuid"] == UUID


def test_a_healthy_gpu_raises_nothing(prometheus: Prometheus) -> None:
    firing = prometheus.firing(scraped(), 1, CHANGE, STEPS)
    # There is no exporter of ours, which docs/dcgm.md says how to switch off.
    assert firing == {1: set(), CHANGE: {"GpuExporterAbsent"}, STEPS: {"GpuExporterAbsent"}}


def test_an_xid_that_comes_pages_and_is_dated_by_its_coming(prometheus: Prometheus) -> None:
    series = scraped(DCGM_FI_DEV_XID_ERRORS=(0, 79))
    [found] = prometheus("gpu_xid_last_timestamp_seconds", series)
    assert found.labels["xid"] == "79"
    assert 0 <= found.value - CHANGE * STEP_SECONDS <= 120
    firing = prometheus.firing(series, CHANGE - 1, STEPS)
    assert firing[CHANGE - 1] == {"GpuExporterAbsent"}
    assert firing[STEPS] == {"GpuExporterAbsent", "GpuXidCritical"}


def test_an_xid_that_stood_there_before_is_no_news(prometheus: Prometheus) -> None:
    series = scraped(DCGM_FI_DEV_XID_ERRORS=(79, 79))
    assert prometheus("gpu_xid_last_timestamp_seconds", series) == ()


def test_damage_pages(prometheus: Prometheus) -> None:
    damage = scraped(DCGM_FI_DEV_ECC_DBE_VOL_TOTAL=(0, 1), DCGM_FI_DEV_ROW_REMAP_FAILURE=(0, 1))
    firing = prometheus.firing(damage, CHANGE - 1, STEPS)
    assert firing[CHANGE - 1] == {"GpuExporterAbsent"}
    assert firing[STEPS] == {"GpuExporterAbsent", "GpuEccUncorrected", "GpuRowRemapFailed"}


@for_each("rule", RULES, ids=lambda rule: "-".join([rule.name, *rule.labels.values(), rule.expr[:60]]))
def test_a_rule_records_a_metric_of_the_catalogue_by_the_table_for_migration(rule: Rule) -> None:
    known = {spec.name: spec for spec in METRICS}
    if ":" in rule.name:
        return
    spec = known[rule.name]
    assert set(rule.labels) - {"recorded_from"} <= set(spec.labels)
    assert rule.labels["recorded_from"] == "dcgm"
    assert windows_matched_as_one(rule.expr) == ()
    fields = set(re.findall(r"DCGM_FI_(?:DEV|PROF)_\w+", rule.expr))
    table = (REPOSITORY / "docs" / "operations.md").read_text(encoding="utf-8")
    rows = [line for line in table.splitlines() if line.startswith("| `DCGM_FI_")]
    if rule.name not in {"gpu_up", "gpu_info", "gpu_driver_info", "gpu_finding", "gpu_finding_value"}:
        assert [row for row in rows if fields & set(re.findall(r"\w+", row)) and rule.name in row], fields


def test_promtool_finds_nothing_to_object_to(requires_tool: RequiresTool) -> None:
    command: list[str | Path] = [requires_tool("promtool"), "check", "rules", "--lint=all", "--lint-fatal", DCGM]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def test_it_is_off_by_default() -> None:
    assert DCGM not in rule_files()
    assert DCGM.parent.name == "compat"


def test_the_page_says_which_alerts_work() -> None:
    assert page() == PAGE.read_text(encoding="utf-8"), "run `make regenerate`"


def test_the_table_is_about_what_can_be_seen() -> None:
    known = sources()
    assert can_fire("gpu_power_watts > 1 unless on (uuid) gpu_processes", known)
    assert can_fire("gpu_bottleneck == 1 or gpu_row_remap_failure == 1", known)
    assert not can_fire("gpu_power_watts > 1 and on (uuid) gpu_processes", known)
    assert not can_fire("rate(gpu_busy_seconds_total[5m])", known)
    assert can_fire("absent(gpu_exporter_build_info)", known)
