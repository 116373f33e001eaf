import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from click import unstyle
from tests.command_line import Run
from tests.gathered import every
from tests.one_shot import look_at, with_life
from tests.rig import pair_with

from gpu_triage.judge.findings.finding import Finding, State
from gpu_triage.judge.findings.table import BY_CODE, Severity
from gpu_triage.judge.report.headline import STATES
from gpu_triage.judge.report.machine_readable import render_json, render_lines
from gpu_triage.judge.report.report import Report
from gpu_triage.judge.report.text import render_text
from gpu_triage.read.exporter.judgment import BOTTLENECK_CLASSES
from gpu_triage_simulator import load_scenario

pytestmark = pytest.mark.slow

HOSTILE = "py\x1b[2J\x1b]0;owned\x07\u202e\tthon\n\x00<&>"


@pytest.fixture(scope="module")
def ailing() -> Report:
    return look_at(load_scenario("dual-a10"), 3600)


def test_json_has_a_version_and_a_documented_shape(ailing: Report) -> None:
    document = json.loads(render_json(ailing))
    assert (document["format"], document["version"], document["simulated"]) == ("gpu-triage-check", 1, True)
    assert set(document) == {
        *("format", "version", "host", "simulated", "recording", "measured_seconds", "driver_version", "blocked"),
        *("verdict", "summary", "judged_at", "gpus", "areas", "findings", "ended", "not_read", "files", "settings"),
        *("scheduled", "not_judged", "repairs"),
    }
    assert document["gpus"][0]["bottleneck"] == "thermal"
    assert document["gpus"][0]["verdict"] == "watch"
    assert document["summary"].startswith("watch. 2 GPUs: ")
    readings = document["gpus"][0]["readings"]
    assert [readings[key] for key in ("pcie_width", "pcie_expected_width", "power_limit_watts")] == [8, 16, 150]
    assert 0.9 < readings["busy_ratio"] <= 1
    (width,) = (each for each in document["findings"] if each["code"] == "pcie.width")
    assert width == {
        **dict.fromkeys(("lasted_seconds", "explained_by", "since", "ended_at", "end", "accepted")),
        "code": "pcie.width",
        "topic": "pcie_link",
        "area": "PCIe links",
        "severity": "warning",
        "confirmed_severity": "critical",
        "state": "pending",
        "wait_seconds": 600,
        "holds": True,
        "quiet_seconds": 0,
        "hold_seconds": 1500,
        "action": "inspect_hardware",
        "alert": "GpuPcieWidthDowntrained",
        "runbook": "GpuPcieWidthDowntrained",
        "runbook_path": "/runbooks/GpuPcieWidthDowntrained",
        "gpu": "0",
        "uuid": "GPU-aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee",
        "pci_bus_id": "0000:65:00.0",
        "measured": "8 of 16 lanes under load, at 0000:65:00.0",
        "detail": "x8 of x16",
        "value": width["value"],
        "meaning": BY_CODE["pcie.width"].advice.meaning,
        "decision": BY_CODE["pcie.width"].advice.decision,
    }


def test_every_key_of_the_json_is_documented(ailing: Report, request: pytest.FixtureRequest) -> None:
    page = (request.config.rootpath / "docs/check.md").read_text()
    document = json.loads(render_json(ailing))
    keys = {
        *document,
        *document["gpus"][0],
        *document["gpus"][0]["readings"],
        *document["areas"][0],
        *document["findings"][0],
    }
    assert {key for key in every(keys) if f"`{key}`" not in page} == set()


def test_lines_say_who_what_and_how_bad(ailing: Report) -> None:
    records = [line.split("\t") for line in render_lines(ailing).splitlines()]
    assert all(field for record in records for field in record)
    assert records[0][:2] == ["host", ailing.verdict.value]
    gpus = {record[1]: record for record in records if record[0] == "gpu"}
    assert {gpu: record[3] for gpu, record in gpus.items()} == {gpu.gpu: gpu.verdict.value for gpu in ailing.gpus}
    findings = [record for record in records if record[0] == "finding"]
    assert [(record[3], record[4]) for record in findings] == [
        (found.urgency.value, found.check.code) for found in ailing.findings
    ]
    assert all(record[3] != "critical" for record in findings), "a script would drain the host for it"
    (width,) = (record for record in findings if record[4] == "pcie.width")
    assert width[7:] == ["pending", "-", "600", "yes"]
    for holds, severity, told in ((True, "critical", "yes"), (False, "warning", "no"), (None, "warning", "-")):
        seen = with_life(ailing, "pcie.width", state=State.CONFIRMED, since=1.0, lasted_seconds=700.4, holds=holds)
        (width,) = (line.split("\t") for line in render_lines(seen).splitlines() if "\tpcie.width\t" in line)
        assert (width[3], *width[7:]) == (severity, "confirmed", "700", "600", told)
    slots = {gpu.gpu: gpu.pci_bus_id for gpu in ailing.gpus}
    assert {record[2] for record in findings if record[1] != "-"} <= set(slots.values())
    assert {len(record) for record in findings} == {11}


def test_a_name_with_a_tab_or_a_line_break_makes_no_field_and_no_line(ailing: Report) -> None:
    lost = Finding(BY_CODE["gpu.lost"], HOSTILE, "0", state=State.CONFIRMED)
    evil = replace(ailing.areas[0], severity=Severity.CRITICAL, findings=(lost,))
    named = replace(ailing.gpus[0], name=HOSTILE)
    lines = render_lines(replace(ailing, host=HOSTILE, areas=(evil, *ailing.areas[1:]), gpus=(named,)))
    assert {line.split("\t")[0] for line in lines.splitlines()} <= {"host", "gpu", "finding"}
    assert {line.count("\t") for line in lines.splitlines()} <= {3, 5, 10}
    assert "\x1b" not in lines


def test_a_healthy_host_gets_one_calm_line_an_area_and_exit_code_0(run: Run) -> None:
    code, out, err = run("check", "--simulate", "idle-downshift", "--for", "5s", "--fail-on", "info")
    assert (code, err) == (0, "")
    areas, _, verdict = out.partition("verdict:")
    assert [line.split()[0] for line in areas.splitlines()[2:] if line] == ["ok"] * 8
    rows = [line.split() for line in verdict.splitlines() if line]
    idle = ["idle", "fine", "no", "compute", "process"]
    assert rows == [["GPU", "0", *idle], ["GPU", "1", *idle], ["host", "fine"]]


def test_a_finding_is_told_with_its_value_meaning_and_action(run: Run) -> None:
    code, out, _ = run("check", "--simulate", "dual-a10", "--simulate-at", "60m", "--for", "5s")
    assert code == 0
    said, *width = out[out.index("warning pcie.width  GPU 0") :].splitlines()[:5]
    assert said == (
        "warning pcie.width  GPU 0: 8 of 16 lanes under load, at 0000:65:00.0 "
        "(must last 10 min; then critical: take it out of use)"
    )
    assert re.search(
        r"\n\n\d+ findings pending: a 5 s check cannot confirm findings that take time\. .*gpu-triage top", out
    )
    assert [line.split()[0] for line in width] == ["held", "means", "do", "runbook"]
    assert "SIMULATED" in out.splitlines()[0]
    assert "\x1b" not in out


def test_colors_are_for_terminals(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("--simulate", "idle-downshift", "--for", "2s")
    assert "\x1b" not in run("check", *arguments).out
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    assert "\x1b[32mok\x1b[0m" in run("check", *arguments).out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in run("check", *arguments).out


@pytest.mark.parametrize(
    ("scenario", "at", "said"),
    [
        (
            "dual-a10",
            3600,
            "use it, but look. 2 GPUs: 1 throttled by heat (GPU 0), 1 busy; critical if it lasts: pcie.width",
        ),
        ("sick-host", 1200, "drain. 2 GPUs: all busy; critical: storage.read_only"),
        ("a100-power-capped", 60, "fine. 1 GPU: held back by a lowered power limit; info: power.cap"),
        ("lost-before-start", 60, "take it out of use. 2 GPUs: 1 sick (GPU 1), 1 busy; critical: gpu.lost, xid.79"),
        ("no-driver", 60, "use it, but look. The GPUs could not be checked; critical if it lasts: driver.unavailable"),
    ],
)
def test_the_first_line_is_the_whole_verdict(scenario: str, at: float, said: str) -> None:
    report = look_at(load_scenario(scenario), at, seconds=3)
    assert unstyle(render_text(report)).splitlines()[0] == f"{scenario} (SIMULATED): {said}"


def test_every_class_has_words_for_the_first_line() -> None:
    assert tuple(STATES) == BOTTLENECK_CLASSES


def test_lines_are_wrapped_for_a_terminal_and_nothing_is_lost(ailing: Report) -> None:
    whole = unstyle(render_text(ailing))
    assert max(map(len, whole.splitlines())) > 150
    for columns in (60, 80, 120):
        wrapped = unstyle(render_text(ailing, columns))
        assert max(map(len, wrapped.splitlines())) <= columns
        assert wrapped.split() == whole.split()
    assert unstyle(render_text(ailing, 10)) == whole


def test_a_recording_is_called_one_and_not_simulated(tmp_path: Path, run: Run) -> None:
    target = tmp_path / "recorded"
    assert run("record", target, "--simulate", "idle-downshift", "--for", "2s").code == 0
    _, out, _ = run("check", "--replay", target, "--for", "2s")
    assert out.startswith(f"{target} (a RECORDING): fine. 2 GPUs: all idle\na RECORDING, not this host as it is now; ")
    assert "SIMULATED" not in out
    document = json.loads(run("check", "--replay", target, "--for", "2s", "--format", "json").out)
    assert (document["simulated"], document["recording"]) == (False, str(target))


def test_it_reads_the_daemons_environment(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GPU_TRIAGE_WEB_LISTEN_ADDRESS", ":9999")
    monkeypatch.setenv("GPU_TRIAGE_EXPECT_GPU_COUNT", "3")
    code, out, _ = run("check", "--simulate", "idle-downshift", "--for", "2s")
    assert code == 1
    assert "gpu.missing" in out


def test_what_the_driver_does_not_report_is_not_called_off_or_none(tmp_path: Path) -> None:
    silent = (
        "PersistenceMode",
        *(f"{kind}RunningProcesses_{v}" for kind in ("Compute", "MPSCompute") for v in ("v2", "v3")),
    )
    effect = 'at = 0\neffect = {{ kind = "error", function = "nvmlDeviceGet{}", code = "NOT_SUPPORTED" }}'
    scenario = pair_with(
        tmp_path, "h100-8", *(f"{effect.format(name)}\ngpu = {gpu}" for name in silent for gpu in range(2))
    )
    said = render_text(look_at(scenario, 60))
    assert "persistence mode not reported" in said
    assert "processes not reported; " in said
    assert "no compute process" not in said
