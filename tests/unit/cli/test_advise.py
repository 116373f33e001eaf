from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.advise_hosts import HOSTS, NARROW, STEP, advice, job, look, look_at
from tests.advise_jobs import CASES, Case
from tests.gathered import every
from tests.rig import scenario_with

from gpu_triage.cli.advise.assumptions import ASSUMPTIONS
from gpu_triage.cli.advise.decision import Choice
from gpu_triage.cli.advise.job import parse_count
from gpu_triage.cli.advise.paths import Access, paths_between
from gpu_triage.cli.advise.recommendation import recommend
from gpu_triage.cli.advise.text import as_text
from gpu_triage.cli.main import group
from gpu_triage.errors import ConfigError
from gpu_triage.judge.evidence.wording import ranges
from gpu_triage.judge.report.text import render_text
from gpu_triage.options.run import run_cli
from gpu_triage.read.gpu.device_memory import GPU_MEMORY_TOTAL_BYTES
from gpu_triage.read.gpu.pcie import GPU_PCIE_LINK_EXPECTED_WIDTH, GPU_PCIE_LINK_WIDTH

pytestmark = pytest.mark.slow


def worked_out(sum_: str) -> float:
    """The result that stands behind an expression, once the expression has that result."""
    expression, _, result = sum_.rpartition(" = ")
    assert re.fullmatch(r"[0-9e.+*/() -]+", expression)
    value = float(result)
    assert eval(expression) == pytest.approx(value, rel=1e-3)  # noqa: S307 - only arithmetic
    return value


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.host}: {case.options}")
def test_a_job_on_a_host_gets_this_answer(case: Case) -> None:
    judgment = look_at(case.host)
    answer = advice(judgment, case.options)
    assert (answer.decision.choice.value, ranges(answer.gpus)) == (case.choice, case.use)
    assert answer.memory is not None
    assert answer.memory.needed_bytes / 2**30 == pytest.approx(worked_out(case.memory), rel=1e-3)
    by_size = {each.gpus: each for each in answer.exchanges}
    assert bool(by_size) == bool(case.exchange)
    if case.exchange:
        size, _, sum_ = case.exchange.partition(": ")
        exchange = by_size[int(size)]
        assert exchange.seconds == pytest.approx(worked_out(sum_), rel=1e-3)
        assert (exchange.efficiency is None) == (not case.efficiency)
        if exchange.efficiency is not None:
            assert exchange.efficiency[0] == pytest.approx(worked_out(case.efficiency), rel=1e-3)
    text = "\n".join(as_text(job(case.options), answer, STEP))
    assert [each for each in case.says if each not in text] == []


def test_the_table_has_thirty_jobs_and_every_choice() -> None:
    assert len(CASES) >= 30
    assert {case.host for case in CASES} == set(HOSTS)
    # No host of the table has no usable GPU at all; the next tests have.
    assert {case.choice for case in CASES} == {choice.value for choice in Choice} - {Choice.NO_GPU.value}


def test_the_sick_link_comes_first_in_the_words_of_check() -> None:
    judgment = look_at("2 A10, 1 sick")
    lines = list(as_text(job("--params 350M"), advice(judgment, "--params 350M"), STEP))
    assert lines[:2] == ["fix first:", "    pcie.width  GPU 0: 8 of 16 lanes under load, at 0000:65:00.0"]
    report = render_text(judgment.report)
    for words in ("8 of 16 lanes under load, at 0000:65:00.0", *(line.strip() for line in lines[2:4])):
        assert words in report
    assert lines.index("recommendation: use one GPU, GPU 1") > 3


def test_a_finding_that_several_gpus_have_alike_is_one_entry(tmp_path: Path) -> None:
    events = [f'at = 0\ngpu = {gpu}\neffect = {{ kind = "nvlink_down", links = [3] }}' for gpu in (0, 1, 4)]
    answer = advice(look(scenario_with(tmp_path, "h100-8", *events)), "--params 3B")
    lines = list(as_text(job("--params 3B"), answer, STEP))
    assert lines[1] == "    nvlink.down  GPU 0-1, 4: down: link 3"


def test_a_broken_nvlink_slows_only_the_group_that_needs_its_gpu(tmp_path: Path) -> None:
    down = 'at = 0\ngpu = 0\neffect = { kind = "nvlink_down", links = [3] }'
    answer = advice(look(scenario_with(tmp_path, "h100-8", down)), "--params 3B --step-time 900ms")
    assert [gpu.gpu for gpu in answer.exchanges[0].path.gpus] == ["1", "2"]
    bandwidths = [each.path.bandwidth for each in answer.exchanges]
    assert bandwidths == pytest.approx([18 * 26.562e9 * 0.75, 18 * 26.562e9 * 0.75, 17 * 26.562e9 * 0.75])
    assert "17 of 18 links" in "\n".join(as_text(job("--params 3B"), answer, STEP))


def test_bridged_pairs_reach_the_other_pair_over_pcie() -> None:
    # As four A100 on PCIe, bridged two by two: NVLink leads to one other GPU, and a ring of four needs two.
    judgment = look_at("4 V100")
    gpus = judgment.host.gpus
    paths = paths_between(judgment.host, gpus)
    bridged = {frozenset((gpus[0].key, gpus[1].key)), frozenset((gpus[2].key, gpus[3].key))}
    pcie = Access.PEER.rank
    pairs = {
        pair: (path if pair in bridged else path._replace(access=pcie), level, refused)
        for pair, (path, level, refused) in paths.pairs.items()
    }
    two, four = (replace(paths, pairs=pairs).of(group) for group in (gpus[:2], gpus))
    assert (two.access, four.access) == (Access.NVLINK, Access.PEER)
    assert four.slowest is not None
    # Two pairs behind a PCIe switch each, on PCIe 3.0: a ring crosses each uplink once.
    assert four.slowest.line_rate == pytest.approx(8e9 * 16 * 128 / 130 / 8)


def test_gpus_are_taken_where_the_path_is_fast_and_sick_ones_are_left_out(tmp_path: Path) -> None:
    judgment = look(scenario_with(tmp_path, "v100-old-driver", NARROW))
    assert advice(judgment, "--params 60M --step-time 1s --gpus 2").gpus == ("2", "3")
    # Three are usable: groups are powers of two.
    assert advice(judgment, "--params 60M --step-time 1s").gpus == ("2", "3")


def test_a_host_without_a_usable_gpu_gets_no_job(tmp_path: Path) -> None:
    sick = 'at = 0\ngpu = 0\neffect = { kind = "ecc", uncorrected = 1 }'
    answer = advice(look(scenario_with(tmp_path, "a100-power-capped", sick)), "--params 60M")
    assert (answer.decision.choice, answer.gpus, answer.exchanges) == (Choice.NO_GPU, (), ())
    assert "ecc.uncorrected" in answer.left_out[0].reason


def test_a_link_that_never_had_more_lanes_costs_no_job(tmp_path: Path) -> None:
    answer = advice(look(scenario_with(tmp_path, "a100-power-capped", NARROW)), "--params 60M")
    assert answer.gpus == ("0",)


def test_a_host_with_a_critical_finding_of_its_own_gets_no_job(tmp_path: Path) -> None:
    message = '["EXT4-fs (nvme0n1p2): Remounting filesystem read-only"]'
    event = f'at = 10\neffect = {{ kind = "kernel_messages", texts = {message} }}'
    answer = advice(look(scenario_with(tmp_path, "rtx-4070-ti-super", event), 60.0), "--params 60M")
    assert (answer.decision.choice, answer.gpus, answer.exchanges) == (Choice.NO_GPU, (), ())
    text = "\n".join(as_text(job("--params 60M"), answer, STEP))
    assert "recommendation: run nothing on this host until this is fixed: storage.read_only" in text


def test_links_of_unknown_speed_give_no_number() -> None:
    judgment = look_at("2 A10")
    widths = {GPU_PCIE_LINK_WIDTH, GPU_PCIE_LINK_EXPECTED_WIDTH}
    index = {spec: groups for spec, groups in judgment.host.index.items() if spec not in widths}
    options = "--params 350M --step-time 1s"
    answer = recommend(job(options), replace(judgment.host, index=index), judgment.report)
    assert answer.decision.choice is Choice.MEASURE
    assert answer.exchanges[0].seconds is None
    text = "\n".join(as_text(job(options), answer, STEP))
    assert "crosses the sockets: the speed of a link is not reported" in text
    assert "break-even" not in text


def test_memory_that_is_not_reported_leaves_open_whether_the_model_fits() -> None:
    judgment = look_at("2 A10")
    index = {spec: groups for spec, groups in judgment.host.index.items() if spec is not GPU_MEMORY_TOTAL_BYTES}
    answer = recommend(job("--params 70B"), replace(judgment.host, index=index), judgment.report)
    assert answer.memory is None
    assert "whether the model fits is not known" in "\n".join(as_text(job("--params 70B"), answer, STEP))


@pytest.mark.parametrize(
    ("text", "count"),
    [("258K", 258e3), ("6.9M", 6.9e6), ("7b", 7e9), ("1T", 1e12), ("12", 12), ("7e9", 7e9), ("1.5E+9", 1.5e9)],
)
def test_a_number_of_parameters_reads_as_people_write_it(text: str, count: float) -> None:
    assert parse_count(text) == count


@pytest.mark.parametrize(
    "text",
    [
        *("", "M", "6,9M", "-1M", "0", "7 B", "7e", "1e-3", "7e9B", "nan", "1e99", "9999T"),
        *("7\N{KELVIN SIGN}", "\N{ARABIC-INDIC DIGIT SEVEN}B"),
    ],
)
def test_a_wrong_number_of_parameters_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"--params: .* is not a number of parameters; write 350M, 3B or 7e9"):
        parse_count(text)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--params 3B --precision int4", "--precision int4 has no gradients: add --lora-rank"),
        ("--params 3B --workload inference --precision mixed", "write bf16 for weights in 16 bits"),
        ("--params 3B --workload inference --lora-rank 8", "--lora-rank is for --workload training"),
        ("--params 3B --workload inference --step-time 1s", "--step-time and --same-total-batch are for"),
        ("--params 3B --workload inference --optimizer sgd", "--optimizer is for --workload training"),
        ("--params 3B --step-time 250", "'250' has no unit; write 250s"),
        ("--params 3B --step-time 0s", "write a duration from 1ms to 24h"),
        ("--params 3B --heads 0", "write a whole number from 1 to 1024"),
        ("--params 3B --gpus 65", "write a whole number from 1 to 64"),
        ("--params 3B --optimizer lion", "adamw8bit"),
        ("--step-time 1s", "--params"),
    ],
)
def test_options_that_make_no_sense_say_what_would(
    options: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_cli(group, ["advise", "--simulate", "h100-8", *options.split()]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert message in err


def test_the_answer_comes_as_text_and_as_json(capsys: pytest.CaptureFixture[str], repository: Path) -> None:
    arguments = ["advise", "--simulate", "rtx-4070-ti-super", "--params", "350M", "--step-time", "200ms"]
    assert run_cli(group, arguments) == 0
    text = capsys.readouterr().out
    assert text.startswith("fix first:\n    p2p.through_host  host: GPU 0-1 exchange data through host memory")
    assert "\n\nrecommendation: use 2 GPUs: GPU 0-1\n" in text
    assert run_cli(group, [*arguments, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["format"], document["version"], document["choice"]) == ("gpu-triage-advice", 1, "several")
    (pair,) = document["groups"]
    assert pair["gpus"] == ["0", "1"]
    assert pair["exchange_bytes"] == 700e6
    assert pair["speedup"] == pytest.approx(2 * 0.7482, rel=1e-3)
    assert document["headline"] in text
    keys = {*document, *document["job"], *document["memory"], *pair, *pair["slowest_link"], *document["assumptions"]}
    page = (repository / "docs/advise.md").read_text()
    assert sorted(key for key in keys if f"`{key}`" not in page) == []


def test_the_example_of_the_docs_is_what_is_printed(repository: Path) -> None:
    example = (repository / "docs/advise.md").read_text().split("```")[3]
    options = "--params 350M --step-time 200ms"
    printed = list(as_text(job(options), advice(look_at("2 RTX 4070 Ti"), options), STEP))
    assert [line for line in every(example.strip().splitlines()) if line not in printed] == []


def test_the_docs_have_every_assumption_with_its_value_and_source(repository: Path) -> None:
    page = (repository / "docs/advise.md").read_text()
    for each in ASSUMPTIONS:
        row = next(line for line in page.splitlines() if line.startswith(f"| `{each.name}` | "))
        value, link = f"{each.value:.2g}", re.search(r"https://\S+|arXiv:\d+\.\d+", each.source)
        assert row.split(" | ")[1] == value
        assert link is not None
        assert link[0].removeprefix("arXiv:") in row


def test_without_a_driver_it_could_not_look(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_cli(group, ["advise", "--simulate", "no-driver", "--params", "6.9M"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("gpu-triage: could not check: driver_not_loaded")
