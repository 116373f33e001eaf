"""What rules/compat/dcgm.yml makes of a page of dcgm-exporter, without an exporter of ours and beside one."""

import math
import re
from collections.abc import Mapping, Sequence

import pytest
from deploy.generate.dcgm_page import recorded_codes
from prometheus_client.parser import text_string_to_metric_families
from tests.conftest import RequiresTool
from tests.gathered import for_each
from tests.promql.expressions import windows_matched_as_one
from tests.promql.promtool import Answers, Run, Sample, ask, selector
from tests.rules.handwritten import FIRING, merged
from tests.rules.rulefile import REPOSITORY, Rule, groups_of, read_rules, rule_files

from gpu_triage.read.exporter.judgment import GPU_BOTTLENECK, GPU_COMPUTE_BOUND
from gpu_triage.read.registry import METRICS

DCGM = REPOSITORY / "rules" / "compat" / "dcgm.yml"
RULES = read_rules([DCGM])
STEP_SECONDS = 30
STEPS = 80
CHANGE = 40
"""Step at which something happens."""
BEFORE, END = (step * STEP_SECONDS * 1.0 for step in (CHANGE - 1, STEPS))

UUID = "GPU-604ac76c-d9cf-fef3-62e9-d92044ab6e52"
BOARD = (
    f'gpu="0",UUID="{UUID}",pci_bus_id="00000000:65:00.0",device="nvidia0",modelName="NVIDIA A100-SXM4-80GB",'
    'Hostname="gpu-7",DCGM_FI_DRIVER_VERSION="535.104.05",container="main",namespace="ml",pod="train-0"'
)
"""Labels as the documentation of dcgm-exporter shows them."""

PAGE_TEXT = f"""\
DCGM_FI_DEV_SM_CLOCK{{{BOARD}}} 1410
DCGM_FI_DEV_MEM_CLOCK{{{BOARD}}} 1593
DCGM_FI_DEV_MEMORY_TEMP{{{BOARD}}} 9223372036854775794
DCGM_FI_DEV_GPU_TEMP{{{BOARD}}} 61
DCGM_FI_DEV_POWER_USAGE{{{BOARD}}} 317.442
DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION{{{BOARD}}} 1293188223
DCGM_FI_DEV_PCIE_REPLAY_COUNTER{{{BOARD}}} 0
DCGM_FI_DEV_GPU_UTIL{{{BOARD}}} 93
DCGM_FI_DEV_XID_ERRORS{{{BOARD},err_code="0",err_msg="No Error"}} 0
DCGM_FI_DEV_FB_USED{{{BOARD}}} 70112
DCGM_FI_DEV_ROW_REMAP_FAILURE{{{BOARD}}} 0
DCGM_FI_DEV_ECC_DBE_VOL_TOTAL{{{BOARD}}} 0
DCGM_FI_PROF_PIPE_TENSOR_ACTIVE{{{BOARD}}} 0.41
DCGM_FI_PROF_DRAM_ACTIVE{{{BOARD}}} 0.37
DCGM_FI_PROF_SM_ACTIVE{{{BOARD}}} 0.88
DCGM_FI_PROF_SM_ACTIVE{{{BOARD},GPU_I_PROFILE="1g.10gb",GPU_I_ID="7"}} 0.11
"""
TARGET = {"job": "dcgm-exporter", "instance": "10.1.2.3:9400", "workload": "training"}
OURS = {"job": "gpu-triage", "instance": "gpu-7:9836", "gpu": "0"}

Series = Mapping[str, Sequence[float]]


def scraped(**changes: tuple[float, float]) -> Series:
    """The page, scraped every step; `changes` are values of a field before and after CHANGE."""
    found = {}
    for family in text_string_to_metric_families(PAGE_TEXT):
        for sample in family.samples:
            before, after = changes.get(sample.name, (sample.value, sample.value))
            values = [before] * CHANGE + [after] * (STEPS + 1 - CHANGE)
            found[selector(sample.name, {**sample.labels, **TARGET}.items())] = values
    return found


def ours(metric: str, value: float, uuid: str = UUID) -> Series:
    return {selector(metric, {**OURS, "uuid": uuid}.items()): [value] * (STEPS + 1)}


CASES: Mapping[str, Series] = {
    "alone": scraped(),
    "beside": merged(scraped(), ours("gpu_up", 1)),
    "told by ours": merged(scraped(), ours("gpu_up", 1), ours("gpu_sm_active_ratio", 0.9)),
    **{
        f"bound by {name}": merged(
            scraped(DCGM_FI_PROF_PIPE_TENSOR_ACTIVE=(pipe, pipe), DCGM_FI_PROF_DRAM_ACTIVE=(dram, dram)),
            ours("gpu_up", 1),
            ours("gpu_bottleneck", GPU_BOTTLENECK.value_of("compute")),
        )
        for name, pipe, dram in (
            ("neither", 0.3999, 0.4999),
            ("compute", 0.4, 0.4999),
            ("memory", 0.3999, 0.5),
            ("both", 0.4, 0.5),
        )
    },
    "bound by FP64": merged(
        scraped(),
        {key.replace("TENSOR", "FP64"): [0.6] * (STEPS + 1) for key in scraped() if "TENSOR" in key},
        ours("gpu_up", 1),
        ours("gpu_bottleneck", GPU_BOTTLENECK.value_of("compute")),
    ),
    "starved": merged(scraped(), ours("gpu_up", 1), ours("gpu_bottleneck", GPU_BOTTLENECK.value_of("storage"))),
    "bound told by ours": merged(
        scraped(),
        ours("gpu_up", 1),
        ours("gpu_bottleneck", GPU_BOTTLENECK.value_of("compute")),
        ours("gpu_compute_bound", GPU_COMPUTE_BOUND.value_of("memory")),
    ),
    "silent to ours": merged(scraped(), ours("gpu_up", 0)),
    "beside another": merged(scraped(), ours("gpu_up", 1, "GPU-other")),
    "Xid": scraped(DCGM_FI_DEV_XID_ERRORS=(0, 79)),
    "dead": scraped(
        DCGM_FI_DEV_XID_ERRORS=(0, 79),
        DCGM_FI_DEV_FB_USED=(70112, math.nan),
        DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION=(1293188223, math.nan),
    ),
    "down": merged(
        {key: values[:CHANGE] for key, values in scraped().items()},
        {selector("up", TARGET.items()): [1.0] * CHANGE + [0.0] * (STEPS + 1 - CHANGE)},
    ),
    "old Xid": scraped(DCGM_FI_DEV_XID_ERRORS=(79, 79)),
    "damage": scraped(DCGM_FI_DEV_ECC_DBE_VOL_TOTAL=(0, 1), DCGM_FI_DEV_ROW_REMAP_FAILURE=(0, 1)),
}
"""What is scraped of a GPU; each is another one."""


class Prometheus:
    """What the rules made of all cases."""

    def __init__(self, answers: Answers) -> None:
        self._answers = answers

    def __call__(self, case: str, question: str, at: float = END) -> list[Sample]:
        """What a question brings of a case."""
        labels = {("uuid", case), ("instance", f"{case}:9400")}
        return [sample for sample in self._answers.samples[question, at] if labels & sample.labels.items()]

    def firing(self, case: str, at: float = END) -> set[str]:
        """Names of alerts."""
        return {sample.labels["alertname"] for sample in self(case, FIRING, at)}


@pytest.fixture(scope="module")
def prometheus(requires_tool: RequiresTool, tmp_path_factory: pytest.TempPathFactory) -> Prometheus:
    files = (DCGM, *rule_files())
    series = {
        key.replace(UUID, case).replace(TARGET["instance"], f"{case}:9400"): values
        for case, each in CASES.items()
        for key, values in each.items()
    }
    questions = tuple((question, END) for question in (*VALUES, *OTHERS, FIRING))
    run = Run(files, groups_of(files), STEP_SECONDS, series, (*questions, (FIRING, BEFORE)))
    return Prometheus(ask(requires_tool("promtool"), run, tmp_path_factory.mktemp("dcgm")))


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
MEMORY = 'gpu_temperature_celsius{sensor="memory"}'
BOUND = "gpu_compute_bound"
XIDS = "gpu_xid_last_timestamp_seconds"
DOWN = "instance_code:gpu_exporter_target:down_since"
OTHERS = (MEMORY, XIDS, DOWN, BOUND, "gpu_info", "gpu_driver_info", 'gpu_up{recorded_from="dcgm"}')


def test_a_field_is_recorded_under_our_name_in_base_units(prometheus: Prometheus) -> None:
    for question, value in VALUES.items():
        [found] = prometheus("alone", question)
        assert found.value == pytest.approx(value), question
        recorded = {**TARGET, "gpu": "0", "uuid": "alone", "recorded_from": "dcgm", "instance": "alone:9400"}
        assert found.labels.items() >= recorded.items(), question
        assert not {"UUID", "modelName", "pod", "namespace", "container", "pci_bus_id"} & found.labels.keys()


def test_labels_become_facts_and_what_means_unknown_is_not_recorded(prometheus: Prometheus) -> None:
    assert prometheus("alone", MEMORY) == []
    [board] = prometheus("alone", "gpu_info")
    assert (board.labels["name"], board.labels["pci_bus_id"]) == ("NVIDIA A100-SXM4-80GB", "0000:65:00.0")
    [driver] = prometheus("alone", "gpu_driver_info")
    assert driver.labels["driver_version"] == "535.104.05"


def test_beside_our_exporter_only_activity_is_recorded_with_the_labels_of_ours(prometheus: Prometheus) -> None:
    [found] = prometheus("beside", "gpu_tensor_active_ratio")
    assert (found.value, found.labels) == (0.41, {**OURS, "uuid": "beside", "recorded_from": "dcgm"})
    nothing = ("gpu_power_watts", 'gpu_up{recorded_from="dcgm"}', "gpu_info", "gpu_driver_info")
    assert [question for question in nothing if prometheus("beside", question)] == []
    assert prometheus("silent to ours", "gpu_tensor_active_ratio") == [], "it does not answer us either"
    assert len(prometheus("beside another", "gpu_power_watts")) == 1


def test_what_our_exporter_says_itself_takes_precedence(prometheus: Prometheus) -> None:
    [found] = prometheus("told by ours", "gpu_sm_active_ratio")
    assert (found.value, found.labels) == (0.9, {**OURS, "uuid": "told by ours"})


def test_a_busy_gpu_of_ours_without_gpm_gets_its_bound(prometheus: Prometheus) -> None:
    for name in GPU_COMPUTE_BOUND.states.values():
        [found] = prometheus(f"bound by {name}", BOUND)
        assert found.value == GPU_COMPUTE_BOUND.value_of(name), name
        assert found.labels == {**OURS, "uuid": f"bound by {name}", "recorded_from": "dcgm"}
    [found] = prometheus("bound by FP64", BOUND)
    assert found.value == GPU_COMPUTE_BOUND.value_of("compute")
    [found] = prometheus("bound told by ours", BOUND)
    assert found.labels == {**OURS, "uuid": "bound told by ours"}
    assert [case for case in ("alone", "beside", "starved") if prometheus(case, BOUND)] == []


def test_an_xid_that_comes_is_dated_by_its_coming_and_one_that_stood_there_is_no_news(prometheus: Prometheus) -> None:
    [found] = prometheus("Xid", XIDS)
    assert found.labels["xid"] == "79"
    assert 0 <= found.value - CHANGE * STEP_SECONDS <= 120
    assert prometheus("old Xid", XIDS) == []


def test_of_a_dead_gpu_nothing_is_recorded_that_moves_with_the_work(prometheus: Prometheus) -> None:
    [up] = prometheus("dead", "gpu_up")
    assert up.value == 0
    moving = ('gpu_clock_hertz{clock="sm"}', "gpu_power_watts", "gpu_sm_utilization_ratio", "gpu_sm_active_ratio")
    assert [question for question in moving if prometheus("dead", question)] == []


def test_a_host_that_goes_down_counts_among_those_that_do_so_together(prometheus: Prometheus) -> None:
    [down] = prometheus("down", DOWN)
    assert (down.value, down.labels["code"]) == (CHANGE * STEP_SECONDS, "host.down")


def test_what_happens_pages_and_a_healthy_gpu_does_not(prometheus: Prometheus) -> None:
    pages = {"alone": set(), "Xid": {"GpuXidCritical"}, "damage": {"GpuEccUncorrected", "GpuRowRemapFailed"}}
    for case, fires in pages.items():
        assert [prometheus.firing(case, at) for at in (BEFORE, END)] == [set(), fires], case


@for_each("rule", RULES, ids=lambda rule: "-".join([rule.name, *rule.labels.values(), rule.expr[:60]]))
def test_a_rule_records_a_metric_of_the_catalog_by_the_table_for_migration(rule: Rule) -> None:
    known = {spec.name: spec for spec in METRICS}
    if ":" in rule.name:
        return
    spec = known[rule.name]
    assert set(rule.labels) - {"recorded_from"} <= set(spec.labels)
    assert rule.labels["recorded_from"] == "dcgm"
    assert windows_matched_as_one(rule.expr) == ()
    fields = set(re.findall(r"DCGM_FI_(?:DEV|PROF)_\w+", rule.expr))
    table = (REPOSITORY / "docs" / "dcgm.md").read_text(encoding="utf-8")
    rows = [line for line in table.splitlines() if line.startswith("- `DCGM_FI_")]
    if rule.name not in {"gpu_up", "gpu_info", "gpu_driver_info", "gpu_compute_bound"} and "_finding" not in rule.name:
        assert [row for row in rows if fields & set(re.findall(r"\w+", row)) and rule.name in row], fields


def test_the_codes_that_are_recorded_are_known() -> None:
    names = ("gpu_finding", "gpu_host_finding")
    found = {rule.labels["code"] for rule in RULES if rule.name in names and "code" in rule.labels}
    assert {code for code in recorded_codes() ^ found if not code.startswith("xid.")} == set()
    assert recorded_codes() >= {"xid.48", "xid.94", "xid.nonfatal", "xid.unlisted"}
    assert "xid.13" not in recorded_codes()
