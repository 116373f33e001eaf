import json
import re
from dataclasses import replace
from functools import cache
from pathlib import Path as FilePath
from typing import NamedTuple

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as some
from tests.advise_hosts import NARROW, advice, job, look, look_at
from tests.command_line import Run
from tests.gathered import every
from tests.rig import scenario_with

from gpu_triage.cli.advise.command import as_text
from gpu_triage.cli.advise.paths import NVLINK, PEER, Path, Range, paths_between
from gpu_triage.cli.advise.recommendation import ASSUMPTIONS, PARAMETERS, Choice, Estimate, Job, decide, recommend
from gpu_triage.judge.evidence.wording import ranges
from gpu_triage.judge.findings.table import Severity
from gpu_triage.judge.report.text import render_text
from gpu_triage.read.gpu.pcie import GPU_PCIE_LINK_EXPECTED_WIDTH, GPU_PCIE_LINK_WIDTH

pytestmark = pytest.mark.slow


class Case(NamedTuple):
    """A job and its answer; the exchange in seconds of the worst case, and the speedup, of a group."""

    host: str
    options: str
    choice: str
    use: str
    exchange: str = ""
    worst: str = ""
    best: str = ""
    says: list[str] = []  # noqa: RUF012 - never changed


JOBS = yaml.safe_load((FilePath(__file__).parent / "advise_jobs.yml").read_text(encoding="utf-8"))
CASES = [Case(**case) for case in JOBS["cases"]]


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
    size, _, sum_ = case.exchange.partition(": ")
    if sum_:
        exchange = {each.gpus: each for each in answer.estimates}[int(size)].exchange_seconds
        assert exchange is not None
        assert exchange.worst == pytest.approx(worked_out(sum_), rel=1e-3)
    speedups = [each.speedup for each in answer.estimates if each.speedup is not None][-1:]
    for bound in ("worst", "best"):
        if expected := getattr(case, bound):
            assert [getattr(each, bound) for each in speedups] == pytest.approx([worked_out(expected)], rel=1e-3)
    text = as_text(answer)
    assert [each for each in case.says if each not in text] == []
    # Advice to exchange 16 bits must hold for cards without bf16, such as T4.
    assert "bf16" not in text
    assert [each for each in answer.first if each.severity is Severity.INFO] == []


@pytest.mark.parametrize(("parameters", "batch", "one", "two"), JOBS["study"])
def test_jobs_measured_slower_on_two_gpus_stay_on_one(parameters: str, batch: int, one: float, two: float) -> None:
    answer = advice(look_at("2 RTX 4070 Ti"), f"--params {parameters} --step-time {1000 * batch / one:.3f}ms")
    assert (answer.decision.choice, answer.gpus) == (Choice.ONE, ("0",))
    (pair,) = answer.estimates
    assert pair.speedup is not None
    assert pair.speedup.worst < two / one < pair.speedup.best


_ORDER = (Choice.ONE, Choice.TRY, Choice.SEVERAL)

_JOBS = some.builds(
    Job,
    parameters=some.floats(1e3, 1e11),
    gradient_bits=some.sampled_from((16, 32)),
    step_seconds=some.floats(1e-3, 1e3),
    grow_batch=some.booleans(),
)


@cache
def paths_of(host: str) -> tuple[Path, ...]:
    """The paths of groups of two, four and eight."""
    hosts = look_at(host).host
    paths = paths_between(hosts, hosts.gpus)
    return tuple(paths.of(paths.nearest(hosts.gpus, size)) for size in (2, 4, 8) if size <= len(hosts.gpus))


def decided(host: str, wanted: Job) -> tuple[int, int]:
    """How far the decision goes, and how many GPUs the job gets."""
    estimates = tuple(Estimate(wanted, path) for path in paths_of(host))
    decision = decide(wanted, estimates, estimates[-1].gpus)
    return _ORDER.index(decision.choice), decision.gpus


@given(some.sampled_from(("2 RTX 4070 Ti", "2 A10", "4 V100", "8 H100")), _JOBS, some.floats(1, 1e3))
def test_a_larger_model_or_a_longer_step_never_gets_fewer_gpus(host: str, wanted: Job, times: float) -> None:
    assert wanted.step_seconds is not None
    longer = replace(wanted, step_seconds=wanted.step_seconds * times)
    larger = replace(longer, parameters=wanted.parameters * times)
    for more in (longer, larger):
        assert all(after >= before for after, before in zip(decided(host, more), decided(host, wanted), strict=True))


@given(some.sampled_from(("2 RTX 4070 Ti", "4 V100")), _JOBS)
def test_the_step_time_from_which_a_group_pays_is_where_its_speedup_does(host: str, wanted: Job) -> None:
    path = paths_of(host)[-1]
    seconds = Estimate(wanted, path).worthwhile_seconds
    assert seconds is not None
    for bound in ("worst", "best"):
        at = Estimate(replace(wanted, step_seconds=getattr(seconds, bound)), path)
        assert getattr(at.speedup, bound) == pytest.approx(at.worthwhile_speedup)


def test_what_to_fix_comes_first_in_the_words_of_check() -> None:
    judgment = look_at("2 A10, 1 sick")
    lines = as_text(advice(judgment, "--params 350M")).splitlines()
    assert lines[:2] == ["fix first:", "    pcie.width  GPU 0: 8 of 16 lanes under load, at 0000:65:00.0"]
    report = render_text(judgment.report)
    for words in ("8 of 16 lanes under load, at 0000:65:00.0", *(line.strip() for line in lines[2:4])):
        assert words in report
    assert lines.index("recommendation: use one GPU, GPU 1") > 3


def test_a_finding_that_several_gpus_have_alike_is_one_entry(tmp_path: FilePath) -> None:
    events = [f'at = 0\ngpu = {gpu}\neffect = {{ kind = "nvlink_down", links = [3] }}' for gpu in (0, 1, 4)]
    answer = advice(look(scenario_with(tmp_path, "h100-8", *events)), "--params 3B")
    assert as_text(answer).splitlines()[1] == "    nvlink.down  GPU 0-1, 4: down: link 3"


def test_a_broken_nvlink_slows_only_the_group_that_needs_its_gpu(tmp_path: FilePath) -> None:
    down = 'at = 0\ngpu = 0\neffect = { kind = "nvlink_down", links = [3] }'
    answer = advice(look(scenario_with(tmp_path, "h100-8", down)), "--params 3B --step-time 900ms")
    assert [gpu.gpu for gpu in answer.estimates[0].path.gpus] == ["1", "2"]
    rates = [each.path.slowest.line_rate for each in answer.estimates if each.path.slowest]
    assert rates == pytest.approx([18 * 26.562e9, 18 * 26.562e9, 17 * 26.562e9])
    assert "17 of 18 links" in as_text(answer)


def test_bridged_pairs_reach_the_other_pair_over_pcie() -> None:
    # As four A100 on PCIe, bridged two by two: NVLink leads to one other GPU, and a ring of four needs two.
    judgment = look_at("4 V100")
    gpus = judgment.host.gpus
    paths = paths_between(judgment.host, gpus)
    bridged = {frozenset((gpus[0].key, gpus[1].key)), frozenset((gpus[2].key, gpus[3].key))}
    pairs = {keys: pair if keys in bridged else pair._replace(access=PEER) for keys, pair in paths.pairs.items()}
    two, four = (replace(paths, pairs=pairs).of(group) for group in (gpus[:2], gpus))
    assert (two.access, four.access) == (NVLINK, PEER)
    assert four.slowest is not None
    # Two pairs behind a PCIe switch each, on PCIe 3.0: a ring crosses each uplink once.
    assert four.slowest.line_rate == pytest.approx(8e9 * 16 * 128 / 130 / 8)


def test_gpus_are_taken_where_the_path_is_fast_and_sick_ones_are_left_out(tmp_path: FilePath) -> None:
    judgment = look(scenario_with(tmp_path, "v100-old-driver", NARROW))
    assert advice(judgment, "--params 60M --step-time 1s --gpus 2").gpus == ("2", "3")
    # Three are usable: groups are powers of two.
    assert advice(judgment, "--params 60M --step-time 1s").gpus == ("2", "3")


def test_a_link_that_never_had_more_lanes_costs_no_job(tmp_path: FilePath) -> None:
    answer = advice(look(scenario_with(tmp_path, "a100-power-capped", NARROW)), "--params 60M")
    assert answer.gpus == ("0",)


@pytest.mark.parametrize(
    ("scenario", "event", "at_seconds", "says"),
    [
        ("a100-power-capped", 'gpu = 0\neffect = { kind = "ecc", uncorrected = 1 }', 0.0, "ecc.uncorrected"),
        (
            "rtx-4070-ti-super",
            'effect = { kind = "kernel_messages", texts = ["EXT4-fs (sda1): Remounting filesystem read-only"] }',
            60.0,
            "because this comes before any job: storage.read_only",
        ),
    ],
)
def test_a_sick_host_gets_no_job(scenario: str, event: str, at_seconds: float, says: str, tmp_path: FilePath) -> None:
    answer = advice(look(scenario_with(tmp_path, scenario, f"at = 0\n{event}"), at_seconds), "--params 60M")
    assert (answer.decision.choice, answer.gpus, answer.estimates) == (Choice.NO_GPU, (), ())
    assert says in as_text(answer)


def test_links_of_unknown_speed_are_to_be_tried() -> None:
    judgment = look_at("2 A10")
    widths = {GPU_PCIE_LINK_WIDTH, GPU_PCIE_LINK_EXPECTED_WIDTH}
    index = {spec: groups for spec, groups in judgment.host.index.items() if spec not in widths}
    answer = recommend(job("--params 350M --step-time 1s"), replace(judgment.host, index=index), judgment.report)
    assert (answer.decision.choice, answer.estimates[0].exchange_seconds) == (Choice.TRY, None)
    text = as_text(answer)
    assert "crosses the sockets: the speed of a link is not reported" in text
    assert "torchrun --nproc-per-node 2" in text


COUNTS = {"258K": 258e3, "6.9M": 6.9e6, "7b": 7e9, "1T": 1e12, "1500": 1500, "7e9": 7e9, "1.5E+9": 1.5e9}
NO_COUNTS = (
    *("", "M", "6,9M", "-1M", "0", "7 B", "7e", "1e-3", "7e9B", "nan", "1e99", "9999T"),
    *("7\N{KELVIN SIGN}", "\N{ARABIC-INDIC DIGIT SEVEN}B"),
)


def test_a_number_of_parameters_reads_as_people_write_it() -> None:
    assert {text: PARAMETERS.parse(text) for text in COUNTS} == COUNTS
    for text in NO_COUNTS:
        with pytest.raises(ValueError, match=r"isn't a parameter count; write 350M, 3B or 7e9"):
            PARAMETERS.parse(text)


def test_the_answer_comes_as_text_and_as_json(run: Run, repository: FilePath) -> None:
    arguments = ["advise", "--simulate", "rtx-4070-ti-super", "--params", "350M", "--step-time", "500ms"]
    code, text, _ = run(*arguments)
    assert code == 0
    document = json.loads(run(*arguments, "--format", "json").out)
    assert (document["format"], document["version"], document["choice"]) == ("gpu-triage-advice", 1, "try")
    (pair,) = document["groups"]
    assert (pair["gpus"], pair["exchange_bytes"]) == (["0", "1"], 1.4e9)
    assert pair["speedup"] == pytest.approx([0.9463, 1.9460], rel=1e-3)
    assert [words for words in (document["headline"], *document["try_it"]) if words not in text] == []
    keys = {*document, *document["job"], *pair, *pair["slowest_link"], *document["assumptions"]}
    page = (repository / "docs/advise.md").read_text()
    assert sorted(key for key in keys if f"`{key}`" not in page) == []


def test_the_example_of_the_docs_is_what_is_printed(repository: FilePath) -> None:
    example = (repository / "docs/advise.md").read_text().split("```")[3]
    printed = as_text(advice(look_at("2 RTX 4070 Ti"), "--params 350M --step-time 500ms")).splitlines()
    assert [line for line in every(example.strip().splitlines()) if line not in printed] == []


def test_the_docs_have_every_assumption_with_its_value(repository: FilePath) -> None:
    page = (repository / "docs/advise.md").read_text()
    for name, value in ASSUMPTIONS.items():
        row = next(line for line in page.splitlines() if line.startswith(f"| `{name}` | "))
        worst_to_best = f"{value.worst:.2g} to {value.best:.2g}" if isinstance(value, Range) else f"{value:.2g}"
        assert row.split(" | ")[1] == worst_to_best.replace("2.6e+07", "25 MiB")


def test_without_a_driver_it_could_not_look(run: Run) -> None:
    code, out, err = run("advise", "--simulate", "no-driver", "--params", "6.9M")
    assert (code, out) == (2, "")
    assert err.startswith("gpu-triage: could not check: driver_not_loaded")
