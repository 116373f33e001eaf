from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tests.rig import scenario_with

from gpu_triage.cli import group
from gpu_triage.config import Config
from gpu_triage.diagnosis.advise.command import parse_count
from gpu_triage.diagnosis.advise.recommendation import BANDS, Choice, Job, JobKind, Recommendation, recommend
from gpu_triage.diagnosis.measure import measure
from gpu_triage.errors import ConfigError
from gpu_triage.options import run_cli
from gpu_triage.simulator import VirtualClock, load_scenario, simulated_machine

if TYPE_CHECKING:
    from pathlib import Path

    from gpu_triage.simulator import Scenario

TRAINING, INFERENCE = JobKind.TRAINING, JobKind.INFERENCE


def advice(scenario: Scenario | str, job: Job, at_seconds: float = 0.0) -> Recommendation:
    scenario = load_scenario(scenario) if isinstance(scenario, str) else scenario
    clock = VirtualClock()
    with simulated_machine(scenario, clock=clock, starting_at=at_seconds) as simulated:
        judgement = measure(simulated.machine, Config(), 3.0)
    return recommend(job, judgement.host, judgement.report)


@pytest.mark.parametrize(
    ("scenario", "parameters", "batch", "choice"),
    [
        ("rtx-4070-ti-super", 258e3, 64, Choice.ONE),
        ("rtx-4070-ti-super", 2e6, 128, Choice.ONE),
        ("rtx-4070-ti-super", 6.9e6, 32, Choice.ONE),
        ("rtx-4070-ti-super", 20e6, 128, Choice.MEASURE),
        ("rtx-4070-ti-super", 20e6, 32, Choice.MEASURE),
        ("rtx-4070-ti-super", 60e6, 64, Choice.SEVERAL),
        ("v100-old-driver", 258e3, 64, Choice.ONE),
        ("v100-old-driver", 6.9e6, 64, Choice.MEASURE),
        ("v100-old-driver", 20e6, 64, Choice.SEVERAL),
        ("v100-old-driver", 60e6, 32, Choice.MEASURE),
    ],
)
def test_size_batch_and_path_decide_a_training(scenario: str, parameters: float, batch: int, choice: Choice) -> None:
    assert advice(scenario, Job(parameters, batch, 2, TRAINING)).choice is choice


def test_an_efficiency_is_told_only_of_what_was_measured() -> None:
    alike = advice("rtx-4070-ti-super", Job(6.9e6, 32, 2, TRAINING))
    assert alike.efficiency == (0.39, 0.45)
    assert "RTX 4070 Ti SUPER" in alike.source
    for other in (
        advice("rtx-4070-ti-super", Job(60e6, 64, 2, TRAINING)),
        advice("v100-old-driver", Job(6.9e6, 64, 2, TRAINING)),
        advice("v100-old-driver", Job(6.9e6, 64, 4, TRAINING)),
        advice("rtx-4070-ti-super", Job(6.9e6, 32, 2, INFERENCE)),
    ):
        assert (other.efficiency, other.source) == (None, "")
        assert other.evidence_ends


def test_measured_efficiencies_are_those_of_the_measured_speedups() -> None:
    never, _, break_even, consider, several = (band.efficiency for band in BANDS)
    assert never == pytest.approx((0.73 / 2, 0.86 / 2), abs=0.006)
    assert break_even == pytest.approx((0.78 / 2, 0.90 / 2))
    assert consider is several is None


def test_the_nearest_gpus_are_chosen_and_sick_ones_left_out(tmp_path: Path) -> None:
    assert advice("v100-old-driver", Job(60e6, 128, 2, TRAINING)).gpus == ("0", "1")
    narrow = scenario_with(tmp_path, "v100-old-driver", 'at = 0\ngpu = 0\neffect = { kind = "link", width = 4 }')
    assert advice(narrow, Job(60e6, 128, 2, TRAINING)).gpus == ("2", "3")
    everyone = advice(narrow, Job(60e6, 128, None, TRAINING))
    assert (everyone.considered, everyone.gpus) == (4, ("0", "1", "2", "3"))
    assert "pcie.width" in {finding.check.code for finding in everyone.fix_first}


def test_a_host_that_cannot_feed_one_gpu_gets_no_second() -> None:
    answer = advice("dual-a10", Job(60e6, 128, 2, TRAINING), at_seconds=3600)
    assert answer.choice is Choice.ONE
    assert answer.gpus == ("1",)
    assert answer.reasons[0].startswith("the host cannot feed more")
    assert {"storage.saturated", "pcie.width"} <= {finding.check.code for finding in answer.fix_first}


def test_a_path_across_sockets_is_called_so() -> None:
    answer = advice("dual-a10", Job(60e6, 128, 2, TRAINING), at_seconds=3600)
    assert any("path SYS, which crosses the sockets" in reason for reason in answer.reasons)


def test_inference_that_fits_gets_a_replica_on_each_gpu() -> None:
    answer = advice("rtx-4070-ti-super", Job(1e9, 8, 2, INFERENCE))
    assert answer.choice is Choice.ONE
    assert "a replica on each GPU" in answer.headline
    assert any("p99" in line for line in answer.evidence_ends)


@pytest.mark.parametrize(("parameters", "kind"), [(2e9, TRAINING), (10e9, INFERENCE)])
def test_a_model_that_does_not_fit_must_be_split_or_get_a_larger_gpu(parameters: float, kind: JobKind) -> None:
    answer = advice("rtx-4070-ti-super", Job(parameters, 64, 2, kind))
    assert answer.choice is Choice.SHARD
    assert "GiB" in answer.reasons[0]


@pytest.mark.parametrize("gpus", [None, 2])
def test_one_gpu_is_one_gpu(gpus: int | None) -> None:
    answer = advice("a100-power-capped", Job(60e6, 64, gpus, TRAINING))
    assert (answer.choice, answer.gpus) == (Choice.ONE, ("0",))


def test_a_gpu_split_by_mig_is_no_candidate() -> None:
    assert advice("h100-mig", Job(60e6, 64, 2, TRAINING)).gpus == ("1",)


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
    assert text.startswith("recommendation: use one GPU, GPU 0, and run other jobs on the other GPUs\n")
    assert "expected efficiency of 2 GPUs: 39% to 45%" in text
    assert "where the evidence ends:" in text
    assert run_cli(group, [*arguments, "--format", "json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["format"], document["version"], document["choice"]) == ("gpu-triage-advice", 1, "one")
    page = (repository / "docs/advise.md").read_text()
    assert [key for key in document if f"`{key}`" not in page] == []


def test_without_a_driver_it_could_not_look(capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ["advise", "--simulate", "no-driver", "--parameters", "6.9M", "--batch-size", "32"]
    assert run_cli(group, arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("gpu-triage: could not look: driver_not_loaded")
