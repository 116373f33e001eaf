"""`gpu-triage top`: its frame, the exporter it asks, and the terminal it takes and gives back."""

import http.client
import json
import os
import pty
import re
import select
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from click import unstyle
from tests.command_line import Run
from tests.gathered import every
from tests.listening import answering
from tests.one_shot import look_at, with_life
from tests.rig import pair_with
from tests.status_server import status_server

from gpu_triage.cli.bounded_http import ended_after
from gpu_triage.cli.exporter_client import ExporterClient, NothingListens, NotJudgedYet, local_url
from gpu_triage.cli.top_command import Watch, frame_of
from gpu_triage.errors import ConfigError, ExporterUnreachable
from gpu_triage.judge.findings.finding import Finding, State
from gpu_triage.judge.findings.settings import judge_settings
from gpu_triage.judge.findings.table import BY_CODE, Severity
from gpu_triage.judge.report.headline import STATES
from gpu_triage.judge.report.machine_readable import render_json, render_lines, report_from_json
from gpu_triage.judge.report.report import Report
from gpu_triage.judge.report.text import render_text
from gpu_triage.options.config import JudgeOption
from gpu_triage.read.exporter.judgment import BOTTLENECK_CLASSES
from gpu_triage_simulator import load_scenario

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def report() -> Report:
    return look_at(load_scenario("h100-8-bad-night"), 70 * 60)


def drawn(report: Report, columns: int | None = None) -> list[str]:
    return unstyle(frame_of(report, "this host", columns)).splitlines()


def test_it_draws_the_report_of_check_and_a_row_of_readings_for_each_gpu(report: Report) -> None:
    lines = drawn(report)
    rows = {line.split()[0]: line.split() for line in lines if re.match(r" +\d ", line)}
    assert list(rows) == list("01234567")
    assert rows["5"][1] == "storage"
    assert rows["5"][8:12] == ["GiB", "gen5", "x4/16", "pod"]
    assert rows["6"][1:] == ["sick", *"-------"]
    more = ["from this host", "", next(line for line in lines if line.startswith("GPU CLASS"))]
    assert [line for line in lines if line not in more and not re.match(r" +\d ", line)] == [
        line for line in unstyle(render_text(report)).splitlines() if line
    ]


@pytest.mark.parametrize("name", ["h100-8-bad-night", "dual-a10", "no-driver"])
def test_a_report_read_from_json_is_drawn_as_the_original(name: str) -> None:
    original = look_at(load_scenario(name), 70 * 60)
    settings = judge_settings((JudgeOption("pcie.width", "wait", "5m"),)).changed
    original = replace(original, settings=settings, recording="/tmp/a recording")  # noqa: S108 - only a name
    read = report_from_json(render_json(original))
    assert drawn(read) == drawn(original)
    assert render_json(read) == render_json(original)
    assert render_lines(read) == render_lines(original)


@pytest.mark.parametrize("lines", [24, 30, 40])
def test_what_has_no_room_is_counted(report: Report, lines: int) -> None:
    watch = Watch(lambda: report, "this host", 2)
    watch.look()
    whole, cut = watch.screen(90, 1000), watch.screen(90, lines)
    assert len(cut) == lines
    assert cut[:-1] == whole[: lines - 1]
    assert unstyle(whole[-1]) == "q quits"
    assert unstyle(cut[-1]) == f"q quits; {len(whole) - lines} more lines: --once prints all"


def test_names_cannot_speak_to_the_terminal(report: Report) -> None:
    hostile = json.loads(render_json(report))
    evil = "x\x1b[2J\u202e[red]"
    hostile["host"] = hostile["gpus"][0]["because"] = hostile["gpus"][0]["bottleneck"] = evil
    hostile["findings"][0] |= {"code": evil, "measured": evil, "decision": evil}
    hostile["not_read"] = [evil]
    hostile["gpus"][0]["held_by"] = [{"pod": "p\x07", "namespace": "n"}]
    said = "\n".join(drawn(report_from_json(json.dumps(hostile))))
    assert not {"\x1b", "\x07", "\u202e"} & set(said)
    assert "\\x1b[2J" in said
    assert "[red]" in said


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": "gpu-triage-check", "version": 99}', "[" * 100_000])
def test_what_is_no_verdict_is_refused(text: str) -> None:
    with pytest.raises((ValueError, RecursionError)):
        report_from_json(text)


def test_a_finding_that_is_unknown_here_is_shown_and_values_of_another_type_are_missing(report: Report) -> None:
    odd = json.loads(render_json(report))
    odd["findings"][0] |= {"code": "moon.phase", "since": "x", "lasted_seconds": True, "holds": 3}
    odd |= {"judged_at": 10**400, "measured_seconds": float("inf")}
    odd["gpus"][0] |= {"since": "x", "held_by": [3], "readings": {"power_watts": True, "busy_ratio": 0.5}}
    odd |= {"ended": {}, "files": [None], "not_read": [5, "a file"], "driver_version": 7}
    read = report_from_json(json.dumps(odd))
    assert (read.gpus[0].since, read.gpus[0].readings.power_watts, read.gpus[0].owners) == (None, None, ())
    assert (read.judged_at, read.measured_seconds) == (0, 0)
    assert (read.driver, read.not_read, read.ended, read.files) == ("", ("a file",), (), ())
    lines = drawn(read)
    assert any(line.startswith("    warning moon.phase  GPU 6: ") for line in lines)
    assert any("50%" in line for line in lines)


def test_it_asks_an_exporter_and_says_when_that_has_no_verdict() -> None:
    with status_server(load_scenario("dual-a10")) as server:
        seen = ExporterClient(server.url.rstrip("/")).look()
    assert [gpu.bottleneck.name for gpu in seen.gpus] == ["thermal", "compute"]
    assert seen.gpus[0].since is not None
    with (
        status_server(load_scenario("dual-a10"), sampled_seconds=0) as server,
        pytest.raises(NotJudgedYet, match="waiting for"),
    ):
        ExporterClient(server.url).look()
    with pytest.raises(NothingListens):
        ExporterClient(server.url).look()


@pytest.mark.parametrize(
    ("reply", "said"),
    [
        (
            b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
            "is no gpu-triage exporter: /api/v1/verdict answers 404",
        ),
        (b"HTTP/1.1 401 Unauthorized\r\nContent-Length: 0\r\n\r\n", "asks for a password; write a line to ~/.netrc"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\njunk", "cannot be read"),
        (b"HTTP/1.1 503 Busy\r\nContent-Length: 4\r\n\r\njunk", "cannot be read"),
        (b"\x15\x03\x01\r\n", "does not answer: "),
    ],
)
def test_an_answer_without_verdict_is_exit_code_1(run: Run, reply: bytes, said: str) -> None:
    with answering(reply) as (url, _):
        code, out, err = run("top", "--once", "--url", url)
    assert (code, out) == (1, "")
    assert err.startswith(f"gpu-triage: error: {url}")
    assert said in err


def test_a_password_is_taken_from_netrc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login ada password secret\n")
    (tmp_path / ".netrc").chmod(0o600)
    with answering(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n") as (url, asked), pytest.raises(ExporterUnreachable):
        ExporterClient(url).look()
    assert b"Authorization: Basic YWRhOnNlY3JldA==" in asked[0]


@pytest.mark.parametrize(
    ("address", "https", "url"),
    [
        (":9836", False, "http://127.0.0.1:9836"),
        ("0.0.0.0:1", True, "https://127.0.0.1:1"),
        ("[::]:9836", False, "http://[::1]:9836"),
        ("10.0.0.7:9836", False, "http://10.0.0.7:9836"),
        ("unix:/run/gpu.sock", False, "unix:/run/gpu.sock"),
    ],
)
def test_the_exporter_of_this_host_is_asked_where_it_listens(address: str, https: bool, url: str) -> None:  # noqa: FBT001
    assert local_url(address, https=https) == url
    assert ExporterClient(url).url == url


@pytest.mark.parametrize(
    "url",
    ["gpu-07:9836", "ftp://gpu-07", "http://", "http://a:b:c", "http://gpu-07/metrics", "http://ada:secret@gpu-07"],
)
def test_what_is_no_url_or_has_a_password_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="leave name and password to" if "@" in url else "--url: .* is no URL"):
        ExporterClient(url)


def test_an_exporter_that_falls_silent_leaves_the_last_report_with_its_age(report: Report) -> None:
    answers = [report]

    def look() -> Report:
        if not answers:
            raise ExporterUnreachable("http://x does not answer: gone")
        return answers.pop()

    watch = Watch(look, "http://x", 2)
    assert [unstyle(line) for line in watch.screen(200, 100)] == ["waiting for http://x", "q quits"]
    watch.look()
    before = watch.screen(200, 100)
    assert unstyle(before[0]).startswith("h100-8-bad-night (SIMULATED): drain. ")
    watch.look()
    trouble, *rest = watch.screen(200, 100)
    assert rest == before
    assert re.fullmatch(r"http://x does not answer: gone; what follows is \d+ s old", unstyle(trouble))


def test_it_takes_the_terminal_and_gives_it_back() -> None:
    leader, follower = pty.openpty()
    program = [sys.executable, "-m", "gpu_triage", "top", "--simulate", "idle-downshift"]
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "30"}
    with subprocess.Popen(program, stdin=follower, stdout=follower, stderr=follower, env=environment) as process:
        os.close(follower)
        shown, ends_at = b"", time.monotonic() + 60
        while b"CLASS" not in shown and time.monotonic() < ends_at:
            if select.select([leader], [], [], 1)[0]:
                shown += os.read(leader, 65536)
        os.write(leader, b"\x1b[Aq")
        while process.poll() is None:
            if select.select([leader], [], [], 0.1)[0]:
                try:
                    shown += os.read(leader, 65536)
                except OSError:
                    break
        assert process.wait(30) == 0
    os.close(leader)
    assert shown.startswith(b"\x1b[?1049h")
    assert shown.rstrip().endswith(b"\x1b[?1049l")
    assert b"this host is SIMULATED" not in shown


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        (24, "GPU CLASS     BUSY"),
        (32, "GPU CLASS   FOR BUSY PCIE"),
        (50, "GPU CLASS     FOR BUSY TEMP PCIE       ON IT"),
        (64, "GPU CLASS     FOR BUSY     POWER TEMP PCIE       ON IT"),
        (100, "GPU CLASS     FOR BUSY     POWER TEMP    MEMORY PCIE       ON IT"),
    ],
)
def test_a_narrow_terminal_drops_columns_and_cuts_none(report: Report, columns: int, expected: str) -> None:
    lines = drawn(report, columns)
    (heading,) = (line for line in lines if line.startswith("GPU CLASS"))
    assert heading.split() == expected.split()
    rows = lines[lines.index(heading) + 1 :][: len(report.gpus)]
    assert all(len(row) <= columns for row in rows)
    assert any(row.split()[:2] == ["5", "storage"] for row in rows)
    assert not any("…" in row.partition(" pod ")[0] for row in rows)


def test_a_connection_that_is_not_made_in_time_is_a_timeout_and_no_thread_fails() -> None:
    failed: list[threading.ExceptHookArgs] = []
    before, threading.excepthook = threading.excepthook, failed.append
    try:
        connection = http.client.HTTPConnection("127.0.0.1", 9)
        with pytest.raises(TimeoutError), ended_after(connection, 0.05):
            time.sleep(0.2)
    finally:
        threading.excepthook = before
    assert failed == []


HOSTILE = "py\x1b[2J\x1b]0;owned\x07\u202e\tthon\n\x00<&>"


@pytest.fixture(scope="module")
def ailing() -> Report:
    return look_at(load_scenario("dual-a10"), 3600)


def test_json_has_a_version_and_a_documented_shape(ailing: Report) -> None:
    document = json.loads(render_json(ailing))
    assert (document["format"], document["version"], document["simulated"]) == ("gpu-triage-check", 1, True)
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


def test_a_short_check_says_what_it_cannot_confirm(run: Run) -> None:
    code, out, _ = run("check", "--simulate", "dual-a10", "--simulate-at", "60m", "--for", "5s")
    assert code == 0
    assert re.search(
        r"\n\n\d+ findings pending: a 5 s check cannot confirm findings that take time\. .*gpu-triage top", out
    )


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
