"""A recording gives the verdict that the live host had: what came before its last seconds counts in both."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.gathered import every
from tests.parts import some
from tests.recorded import KEY, captured
from tests.rig import Rig, pair

from gpu_triage.cli.main import group
from gpu_triage.cli.measure import judge_recording
from gpu_triage.cli.run import run_cli
from gpu_triage.judge.report.machine_readable import report_from_json
from gpu_triage.judge.report.report import Report
from gpu_triage.options.config import Config
from gpu_triage.record.bundle import write_recording
from gpu_triage.record.masking import Masker, masked
from gpu_triage_simulator import VirtualClock, load_scenario, simulated_machine
from gpu_triage_simulator.scenario_file import SCENARIOS

pytestmark = pytest.mark.slow

RECORDED_SECONDS = 90.0
PAUSES_AT = 2760.0
"""When both GPUs of the training day have done nothing for a minute, after they worked."""
NAMES = sorted(path.stem for path in SCENARIOS.glob("*.toml"))
USUAL = ("training-day", "dual-a10", "sick-host")


def recorded(name: str, at: float, path: Path, seconds: float = RECORDED_SECONDS) -> Report:
    """The last report of an exporter that runs on a scenario until then, and is recorded from its start on."""
    scenario = pair(name) if len(load_scenario(name).gpus) > 2 else load_scenario(name)
    # Neither what a scheduler says nor what is on disk is recorded.
    scenario = replace(scenario, incidents=())
    clock = VirtualClock()
    with simulated_machine(scenario, clock=clock, starting_at=max(0.0, at - seconds)) as simulated:
        with captured(replace(simulated.machine, pods=None, slurm=None)) as capture:
            host = Rig(simulated, clock, Config(), machine=capture.machine)
            host.run(seconds)
            write_recording(masked(capture.captured(), Masker(KEY)), path)
        assert host.judge.latest is not None
        return host.judge.latest.report


def verdicts(report: Report) -> dict[str, object]:
    gpus = {gpu.gpu: (gpu.bottleneck.name, gpu.bottleneck.because, gpu.verdict, gpu.codes) for gpu in report.gpus}
    findings = {(each.subject, each.check.code, each.state) for each in report.findings}
    areas = {area.area: area.is_known for area in report.areas}
    return {"host": report.verdict, "gpus": gpus, "findings": findings, "areas": areas}


def moments(name: str) -> tuple[float, ...]:
    """The middle and the last time that something is expected of a scenario."""
    times = sorted({float(each.at) for each in load_scenario(name).expectations}) or [120.0]
    return tuple(dict.fromkeys((times[len(times) // 2], times[-1])))


@pytest.mark.parametrize("name", some(NAMES, usual=USUAL))
def test_a_recording_has_the_verdict_of_the_live_host(tmp_path: Path, name: str) -> None:
    for at in every(moments(name)):
        path = tmp_path / f"{at:.0f}"
        live = recorded(name, at, path)
        assert verdicts(judge_recording(Config(replay=path))) == verdicts(live), at


def test_every_command_that_reads_a_recording_has_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "recording"
    live = recorded("training-day", PAUSES_AT, path, 180)
    assert {gpu.bottleneck.name for gpu in live.gpus} == {"compute"}, "they pause, and that needs what was before"
    for arguments in (["--replay", str(path)], ["--from", str(path)]):
        run_cli(group, ["check", "--format", "json", *arguments])
        assert verdicts(report_from_json(capsys.readouterr().out))["gpus"] == verdicts(live)["gpus"]
    assert run_cli(group, ["top", "--once", "--replay", str(path)]) == 0
    assert "pauses" in capsys.readouterr().out


def test_the_last_seconds_alone_can_still_be_asked_for(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "recording"
    recorded("training-day", PAUSES_AT, path, 180)
    run_cli(group, ["check", "--format", "json", "--replay", str(path), "--for", "10s"])
    report = report_from_json(capsys.readouterr().out)
    assert report.measured_seconds == 10
    assert {gpu.bottleneck.name for gpu in report.gpus} == {"unattributed"}
    assert all(gpu.bottleneck.unseen for gpu in report.gpus), "what it does not know, it says"
