from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.rig import scenario_with

from gpu_triage.cli.advise.answer import as_text
from gpu_triage.cli.advise.command import parse_count
from gpu_triage.cli.advise.job import Job, JobKind
from gpu_triage.cli.advise.recommendation import Recommendation, recommend
from gpu_triage.cli.advise.rules import BANDS, RULES, Choice
from gpu_triage.cli.main import group
from gpu_triage.cli.measure import measure
from gpu_triage.errors import ConfigError
from gpu_triage.judge.evidence.ranges import ranges
from gpu_triage.judge.host_judge import Judgment
from gpu_triage.options.config import Config
from gpu_triage.options.run import run_cli
from gpu_triage_simulator import Scenario, VirtualClock, load_scenario, simulated_machine

pytestmark = pytest.mark.slow

TRAINING, INFERENCE = JobKind.TRAINING, JobKind.INFERENCE

HOSTS = {
    "2 RTX 4070 Ti": ("rtx-4070-ti-super", 0.0),  # 16 GiB, no peer access
    "4 V100": ("v100-old-driver", 0.0),  # 16 GiB, NVLink
    "8 H100": ("h100-8", 0.0),  # 80 GiB, NVLink
    "8 H100, 2 sick": ("h100-8-bad-night", 1800.0),  # GPU 3 and 5 are to be drained
    "2 A10": ("idle-downshift", 0.0),  # 24 GiB, free
    "2 A10, 1 sick": ("dual-a10", 3600.0),  # GPU 0 is to be drained, the disk is at its limit
    "2 A10, 1 lost": ("lost-before-start", 0.0),  # GPU 1
    "2 A10, starved": ("sick-host", 600.0),  # its file server does not respond
    "2 L40S, 1 free": ("no-host-pids", 0.0),  # GPU 1
    "1 A100": ("a100-power-capped", 0.0),  # 40 GiB
    "2 H100, 1 MIG": ("h100-mig", 0.0),  # GPU 0 is partitioned
}

CASES = """
# host           job       workload   batch  --gpus  choice     rule                use          others       must say
2 RTX 4070 Ti  | 258K    | training  | 64  | 2  | one       | size-below-1M      | 0          | 1          | 36% to 43%
2 RTX 4070 Ti  | 2M      | training  | 128 | 2  | one       | size-1M-to-5M      | 0          | 1          | 37% to 43%
2 RTX 4070 Ti  | 6.9M    | training  | 32  | 2  | one       | size-5M-to-10M     | 0          | 1          | a speedup of 0.78 to 0.90
2 RTX 4070 Ti  | 20M     | training  | 128 | 2  | measure   | size-10M-to-50M    | 0-1        |            | its author's extrapolation
2 RTX 4070 Ti  | 20M     | training  | 32  | 2  | measure   | batch-per-gpu      | 0-1        |            | a batch of 32 over 2 GPUs is 16 per GPU
2 RTX 4070 Ti  | 60M     | training  | 64  | 2  | several   | size-above-50M     | 0-1        |            | 240 MB in FP32
2 RTX 4070 Ti  | 60M     | training  | 63  | 2  | measure   | batch-per-gpu      | 0-1        |            | 31.5 per GPU
2 RTX 4070 Ti  | 60M     | training  | 1   | 2  | one       | batch-per-gpu      | 0          | 1          | 0.5 per GPU
2 RTX 4070 Ti  | 60M     | training  | 64  | 1  | one       | one-usable-gpu     | 0          | 1          | one GPU was asked for
2 RTX 4070 Ti  | 800M    | training  | 64  |    | several   | size-above-50M     | 0-1        |            | needed: 11.9 GiB; 12.8 GiB usable (80%) of 16.0 GiB
2 RTX 4070 Ti  | 900M    | training  | 64  |    | shard     | model-exceeds-gpu  | 0-1        |            | needed: 13.4 GiB
2 RTX 4070 Ti  | 2B      | training  | 64  |    | too_large | model-exceeds-host |            |            | 4.2 GiB more than its 2 usable GPUs; 3 GPUs of 16.0 GiB
2 RTX 4070 Ti  | 1B      | inference | 8   |    | one       | inference-fits     | 0          | 1          | p99
2 RTX 4070 Ti  | 10B     | inference | 8   |    | shard     | model-exceeds-gpu  | 0-1        |            | INT8: 9.3 GiB on one GPU (fits
2 RTX 4070 Ti  | 30B     | inference | 8   |    | too_large | model-exceeds-host |            |            | INT8: 27.9 GiB on 3 GPUs (does not fit; 4 bits: 14.0 GiB on 2 GPUs (fits
4 V100         | 258K    | training  | 256 |    | one       | size-below-1M      | 0          | 1-3        | leave GPU 1-3 to other jobs
4 V100         | 6.9M    | training  | 64  | 2  | measure   | size-5M-to-10M     | 0-1        |            | over NVLink
4 V100         | 6.9M    | training  | 128 |    | measure   | size-5M-to-10M     | 0-3        |            | 32 per GPU
4 V100         | 20M     | training  | 64  | 2  | several   | size-10M-to-50M    | 0-1        |            | how much earlier was not measured
4 V100         | 60M     | training  | 128 |    | several   | size-above-50M     | 0-3        |            | use 4 GPUs: GPU 0-3
4 V100         | 60M     | training  | 96  |    | several   | batch-per-gpu      | 0-2        |            | 24 per GPU; a batch of 128 would feed all 4
8 H100         | 60M     | training  | 64  |    | several   | batch-per-gpu      | 0-1        |            | a batch of 64 over 8 GPUs is 8 per GPU
8 H100         | 60M     | training  | 256 |    | several   | size-above-50M     | 0-7        |            | 32 per GPU
8 H100         | 60M     | training  | 256 | 16 | several   | size-above-50M     | 0-7        |            | 16 GPUs were asked for; this host has 8 GPUs: the answer is for 8
8 H100         | 7B      | training  | 16  |    | shard     | model-exceeds-gpu  | 0-7        |            | needed: 104 GiB; at least 2 GPUs; LoRA, base weights frozen in BF16: 13.0 GiB on one GPU
8 H100         | 7B      | training  | 4   |    | shard     | model-exceeds-gpu  | 0-3        |            | split the model over 4 GPUs
8 H100         | 30B     | training  | 4   |    | shard     | model-exceeds-gpu  | 0-7        |            | a batch of 4 has less than one sample per GPU
8 H100         | 70B     | training  | 64  |    | too_large | model-exceeds-host |            |            | needed: 1,043 GiB; 510 GiB usable of 637 GiB; 533 GiB more; 17 GPUs; 2,015 GiB; slower (fits
8 H100         | 70B     | inference | 16  |    | shard     | model-exceeds-gpu  | 0-3        |            | at least 3 GPUs; 2 replicas of 4 GPUs; 4 bits: 32.6 GiB on one GPU
8 H100         | 405B    | inference | 16  |    | too_large | model-exceeds-host |            |            | 12 GPUs of 79.6 GiB; INT8: 377 GiB on 6 GPUs (fits
8 H100         | 8B      | inference | 16  |    | one       | inference-fits     | 0          | 1-7        | GPU 1-7 can hold more replicas
8 H100, 2 sick | 70B     | training  | 64  |    | too_large | model-exceeds-host |            |            | 661 GiB more than its 6 usable GPUs; GPU 3: has a critical finding: thermal.hw; GPU 5: has a critical finding: pcie.width
8 H100, 2 sick | 30B     | training  | 64  |    | too_large | model-exceeds-host |            |            | this host has them once its sick GPUs are repaired
8 H100, 2 sick | 60M     | training  | 256 | 8  | several   | size-above-50M     | 0-2, 4, 6-7 |           | this host has 8 GPUs, 6 of them usable: the answer is for 6
8 H100, 2 sick | 13B     | inference | 8   |    | one       | inference-fits     | 0          | 1-2, 4, 6-7 | GPU 3: has a critical finding
2 A10          | 13B     | inference | 8   |    | shard     | model-exceeds-gpu  | 0-1        |            | needed: 24.2 GiB; 18.0 GiB usable (80%) of 22.5 GiB
2 A10          | 7B      | inference | 8   |    | one       | inference-fits     | 0          | 1          | needed: 13.0 GiB
2 A10, 1 sick  | 60M     | training  | 128 | 2  | one       | one-usable-gpu     | 1          |            | the host cannot feed more; storage.saturated
2 A10, 1 sick  | 13B     | inference | 8   |    | too_large | model-exceeds-host |            |            | 6.2 GiB more than its one usable GPU
2 A10, 1 lost  | 60M     | training  | 64  |    | one       | one-usable-gpu     | 0          |            | GPU 1: to be drained: gpu.lost
2 A10, starved | 60M     | training  | 64  |    | one       | host-starved       | 0          |            | the host cannot feed more
2 A10, starved | 7B      | inference | 8   |    | one       | host-starved       | 0          |            | the host cannot feed more
2 L40S, 1 free | 258K    | training  | 64  |    | one       | size-below-1M      | 1          | 0          | use one GPU, GPU 1
1 A100         | 60M     | training  | 64  | 2  | one       | one-usable-gpu     | 0          |            | this host has 1 GPU: the answer is for 1
1 A100         | 7B      | training  | 64  |    | too_large | model-exceeds-host |            |            | 4 GPUs of 40.0 GiB; 156 GiB of host memory, of which this host has 503 GiB
2 H100, 1 MIG  | 60M     | training  | 64  | 2  | one       | one-usable-gpu     | 1          |            | GPU 0: partitioned by MIG
"""  # noqa: E501 a table is read in rows


class Case(NamedTuple):
    host: str
    job: Job
    choice: str
    rule: str
    gpus: str
    others: str
    says: tuple[str, ...]


def _cases() -> list[Case]:
    cases = []
    for line in CASES.strip().splitlines()[1:]:
        host, parameters, kind, batch, gpus, choice, rule, use, others, says = (
            cell.strip() for cell in line.split("|")
        )
        job = Job(parse_count(parameters), int(batch), int(gpus) if gpus else None, JobKind(kind))
        cases.append(Case(host, job, choice, rule, use, others, tuple(says.split("; "))))
    return cases


@cache
def look_at(name: str, at_seconds: float) -> Judgment:
    return look(load_scenario(name), at_seconds)


def look(scenario: Scenario, at_seconds: float = 0.0) -> Judgment:
    with simulated_machine(scenario, clock=VirtualClock(), starting_at=at_seconds) as simulated:
        return measure(simulated.machine, Config(), 3.0)


def advice(judgment: Judgment, job: Job) -> Recommendation:
    return recommend(job, judgment.host, judgment.report)


@pytest.mark.parametrize("case", _cases(), ids=lambda case: f"{case.host}-{case.job.parameters:.3g}-{case.rule}")
def test_a_job_on_a_host_gets_this_answer(case: Case) -> None:
    answer = advice(look_at(*HOSTS[case.host]), case.job)
    assert (answer.choice.value, answer.rule.name, ranges(answer.gpus), ranges(answer.other_gpus)) == (
        case.choice,
        case.rule,
        case.gpus,
        case.others,
    )
    text = "\n".join(as_text(case.job, answer))
    assert [each for each in case.says if each not in text] == []
    assert f"    rule {answer.rule.name}: " in text
    assert f"    source: {answer.rule.source}" in text


def test_every_rule_has_a_case_and_a_line_in_the_docs(repository: Path) -> None:
    page = (repository / "docs/advise.md").read_text()
    assert [rule.name for rule in RULES if f"`{rule.name}`" not in page] == []
    assert {rule.name for rule in RULES} - {case.rule for case in _cases()} == {"host-unfit", "no-usable-gpu"}


def test_an_efficiency_is_told_only_of_what_was_measured() -> None:
    without_peers, with_peers = look_at(*HOSTS["2 RTX 4070 Ti"]), look_at(*HOSTS["4 V100"])
    assert advice(without_peers, Job(6.9e6, 32, 2, TRAINING)).efficiency == (0.39, 0.45)
    for judgment, job in (
        (without_peers, Job(60e6, 64, 2, TRAINING)),
        (with_peers, Job(6.9e6, 64, 2, TRAINING)),
        (without_peers, Job(6.9e6, 32, 2, INFERENCE)),
    ):
        answer = advice(judgment, job)
        assert answer.efficiency is None
        assert answer.evidence_ends


def test_measured_efficiencies_are_those_of_the_measured_speedups() -> None:
    never, _, break_even, consider, several = (band.efficiency for band in BANDS)
    assert never == pytest.approx((0.73 / 2, 0.86 / 2), abs=0.006)
    assert break_even == pytest.approx((0.78 / 2, 0.90 / 2))
    assert consider is several is None


def test_the_nearest_gpus_are_chosen_and_sick_ones_left_out(tmp_path: Path) -> None:
    narrow = 'at = 0\ngpu = 0\neffect = { kind = "link", width = 4 }'
    judgment = look(scenario_with(tmp_path, "v100-old-driver", narrow))
    assert advice(judgment, Job(60e6, 128, 2, TRAINING)).gpus == ("2", "3")
    assert advice(judgment, Job(60e6, 128, None, TRAINING)).gpus == ("1", "2", "3")


def test_a_host_whose_every_gpu_has_a_critical_finding_gets_no_job(tmp_path: Path) -> None:
    sick = 'at = 0\ngpu = 0\neffect = { kind = "ecc", uncorrected = 1 }'
    answer = advice(look(scenario_with(tmp_path, "a100-power-capped", sick)), Job(60e6, 128, None, TRAINING))
    assert (answer.choice, answer.rule.name, answer.gpus) == (Choice.NO_GPU, "no-usable-gpu", ())
    assert "ecc.uncorrected" in answer.left_out[0].reason


def test_a_link_that_never_had_more_lanes_costs_no_job(tmp_path: Path) -> None:
    narrow = 'at = 0\ngpu = 0\neffect = { kind = "link", width = 4 }'
    answer = advice(look(scenario_with(tmp_path, "a100-power-capped", narrow)), Job(60e6, 128, None, TRAINING))
    assert answer.gpus == ("0",)


def test_a_host_that_is_to_be_drained_gets_no_job(tmp_path: Path) -> None:
    message = '["EXT4-fs (nvme0n1p2): Remounting filesystem read-only"]'
    event = f'at = 10\neffect = {{ kind = "kernel_messages", texts = {message} }}'
    judgment = look(scenario_with(tmp_path, "rtx-4070-ti-super", event), 60.0)
    answer = advice(judgment, Job(60e6, 128, None, TRAINING))
    assert (answer.choice, answer.rule.name, answer.gpus) == (Choice.NO_GPU, "host-unfit", ())
    assert answer.headline == "run nothing on this host until this is fixed: storage.read_only"
    assert [finding.check.code for finding in answer.fix_first] == ["storage.read_only"]


@pytest.mark.parametrize(("text", "count"), [("258K", 258e3), ("6.9M", 6.9e6), ("7b", 7e9), ("1T", 1e12), ("12", 12)])
def test_a_number_of_parameters_reads_as_people_write_it(text: str, count: float) -> None:
    assert parse_count(text) == count


@pytest.mark.parametrize(
    "text",
    ["", "M", "6,9M", "-1M", "0", "7 B", "1e6", "nan", "7\N{KELVIN SIGN}", "\N{ARABIC-INDIC DIGIT SEVEN}B"],
)
def test_a_wrong_number_of_parameters_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"write 258K, 6\.9M or 7B"):
        parse_count(text)


def test_the_answer_comes_as_text_and_as_json(capsys: pytest.CaptureFixture[str], repository: Path) -> None:
    arguments = ["advise", "--simulate", "rtx-4070-ti-super", "--parameters", "6.9M", "--batch-size", "32"]
    assert run_cli(group, arguments) == 0
    text = capsys.readouterr().out
    assert text.startswith("recommendation: use one GPU, GPU 0, and leave GPU 1 to other jobs\n")
    assert run_cli(group, [*arguments, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["format"], document["version"], document["choice"]) == ("gpu-triage-advice", 1, "one")
    page = (repository / "docs/advise.md").read_text()
    assert [key for key in (*document, *document["memory"], *document["rule"]) if f"`{key}`" not in page] == []


def test_without_a_driver_it_could_not_look(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["advise", "--simulate", "no-driver", "--parameters", "6.9M", "--batch-size", "32"]
    assert run_cli(group, arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("gpu-triage: could not check: driver_not_loaded")
