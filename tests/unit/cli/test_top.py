"""`gpu-triage top`: its frame, the exporter it asks, and the terminal it takes and gives back."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.console import Console
from tests.one_shot import look_at
from tests.status_server import status_server

from gpu_triage.cli.main import group
from gpu_triage.cli.top.exporter_client import ExporterClient, NothingListens, NotJudgedYet, local_url
from gpu_triage.cli.top.frame import Frame, render
from gpu_triage.cli.top.screen import Watch
from gpu_triage.cli.top.view import HostView, view_of
from gpu_triage.errors import ConfigError, ExporterUnreachable
from gpu_triage.judge.report.machine_readable import render_json
from gpu_triage.options.run import run_cli
from gpu_triage_simulator import load_scenario

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def document() -> str:
    return render_json(look_at(load_scenario("h100-8-bad-night"), 70 * 60))


@pytest.fixture(scope="module")
def view(document: str) -> HostView:
    return view_of(document)


def drawn(frame: Frame, columns: int = 100, lines: int | None = None) -> list[str]:
    console = Console(width=columns, color_system=None)
    with console.capture() as captured:
        console.print(render(frame, (columns, lines)))
    return captured.get().splitlines()


@contextmanager
def answering(reply: bytes) -> Iterator[str]:
    """The URL of a server that gives everybody this reply."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    connection.recv(65536)
                    connection.sendall(reply)

        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)


def test_a_frame_has_a_row_for_each_gpu_and_says_why(view: HostView) -> None:
    lines = drawn(Frame(view, "this host"))
    rows = {line.split()[0]: line.split() for line in lines if re.match(r" +\d ", line)}
    assert list(rows) == list("01234567")
    assert rows["5"][1] == "pcie_link"
    assert rows["5"][8:12] == ["GiB", "gen5", "x4/16", "pod"]
    assert rows["6"][1:] == ["sick", *"-------"]
    assert any(line.startswith("storage  GPU 0-4, 7: 31% of the CPU time is iowait") for line in lines)
    found = [line for line in lines if line.startswith(("critical", "warning"))]
    assert [line.split()[:2] for line in found[:2]] == [["critical", "gpu.lost"], ["critical", "xid.79"]]
    said = (
        "warning pcie.width  GPU 5: 4 of 16 lanes under load, at 0000:ab:00.0 (must last 10 min; then critical: drain)"
    )
    assert said in drawn(Frame(view, "this host"), 200)


def test_pending_confirmed_and_ended_findings_are_told_apart(document: str) -> None:
    told = json.loads(document)
    (width,) = (each for each in told["findings"] if each["code"] == "pcie.width")
    at = told["judged_at"]
    pending = {**width, "since": at - 40, "lasted_seconds": 40}
    warning = {**width, "code": "thermal.sw", "state": "confirmed", "confirmed_severity": "warning", "since": at - 600}
    over = {**width, "state": "ended", "ended_at": at - 300, "end": "gone", "lasted_seconds": 1500}
    told["findings"] = [pending, warning]
    told["ended"] = [{**over, "gpu": str(gpu), "ended_at": at - 300 - gpu} for gpu in range(8)]
    lines = drawn(Frame(view_of(json.dumps(told)), "here"), 200)
    found = [line for line in lines if line.startswith("warning ")]
    measured = "4 of 16 lanes under load, at 0000:ab:00.0"
    assert found == [
        f"warning thermal.sw  GPU 5: {measured}, for 10 min",
        f"warning pcie.width  GPU 5: {measured} (has lasted 40 s of 10 min; then critical: drain)",
    ]
    assert lines[-8:-6] == [f"ended 5 min ago: pcie.width GPU {gpu}, lasted 25 min" for gpu in (0, 1)]
    cut = drawn(Frame(view_of(json.dumps(told)), "here"), 200, 40)
    assert cut[-2:] == ["ended 5 min ago: pcie.width GPU 2, lasted 25 min", "and 5 more that ended"]


def test_an_exporter_that_tells_no_states_is_believed(document: str) -> None:
    older = json.loads(document)
    del older["ended"]
    for finding in older["findings"]:
        for key in ("state", "confirmed_severity", "lasted_seconds", "wait_seconds", "holds", "quiet_seconds"):
            del finding[key]
        finding.update(severity="critical", since=older["judged_at"] - 600)
    lines = drawn(Frame(view_of(json.dumps(older)), "here"), 200)
    assert "critical pcie.width  GPU 5: 4 of 16 lanes under load, at 0000:ab:00.0, for 10 min" in lines


@pytest.mark.parametrize("lines", [24, 30, 40])
def test_findings_that_have_no_room_are_counted(view: HostView, lines: int) -> None:
    whole = drawn(Frame(view, "this host", hint="q quits"), 90)
    cut = drawn(Frame(view, "this host", hint="q quits"), 90, lines)
    assert len(cut) <= lines
    assert cut[-1].strip() == "q quits"
    assert ("more: gpu-triage check shows all" in "\n".join(cut)) == (len(whole) > lines)


def test_names_cannot_speak_to_the_terminal(document: str) -> None:
    hostile = json.loads(document)
    hostile["host"] = hostile["summary"] = hostile["gpus"][0]["because"] = "x\x1b[2J\u202e[red]"
    hostile["gpus"][0]["held_by"] = [{"pod": "p\x07", "namespace": "n"}]
    said = "\n".join(drawn(Frame(view_of(json.dumps(hostile)), "here")))
    assert not {"\x1b", "\x07", "\u202e"} & set(said)
    assert "\\x1b[2J" in said
    assert "[red]" in said


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"format": "gpu-triage-check", "version": 99}', "[" * 100_000],
)
def test_what_is_no_verdict_is_refused(text: str) -> None:
    with pytest.raises((ValueError, RecursionError)):
        view_of(text)


def test_a_verdict_of_another_shape_is_shown_as_far_as_it_goes() -> None:
    gpus = '[{"gpu": 7, "since": "x", "readings": {"power_watts": true, "busy_ratio": 0.5}, "held_by": [3]}, null]'
    odd = view_of(
        f'{{"format": "gpu-triage-check", "version": 3, "verdict": "keep", "gpus": {gpus}, "findings": {{}}}}'
    )
    assert (odd.summary, odd.gpus[0].since, odd.gpus[0].readings.power_watts) == ("keep", None, None)
    assert any("50%" in line for line in drawn(Frame(odd, "here")))


def test_it_asks_an_exporter_and_says_when_that_has_no_verdict() -> None:
    with status_server(load_scenario("dual-a10")) as server:
        seen = ExporterClient(server.url.rstrip("/")).look()
    assert [gpu.bottleneck for gpu in seen.gpus] == ["thermal", "compute"]
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
def test_an_answer_that_is_no_verdict_is_one_line_and_exit_code_1(
    capsys: pytest.CaptureFixture[str], reply: bytes, said: str
) -> None:
    with answering(reply) as url:
        assert run_cli(group, ["top", "--once", "--url", url]) == 1
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"gpu-triage: error: {url}")
    assert said in err


def test_a_password_is_taken_from_netrc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / ".netrc").write_text("machine 127.0.0.1 login ada password secret\n")
    (tmp_path / ".netrc").chmod(0o600)
    heard: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                heard.append(connection.recv(65536))
                connection.sendall(b"HTTP/1.1 404 No\r\nContent-Length: 0\r\n\r\n")

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(ExporterUnreachable):
            ExporterClient(f"http://127.0.0.1:{server.getsockname()[1]}").look()
        thread.join()
    assert b"Authorization: Basic YWRhOnNlY3JldA==" in heard[0]


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


@pytest.mark.parametrize("url", ["gpu-07:9836", "ftp://gpu-07", "http://", "http://a:b:c", "http://gpu-07/metrics"])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="--url: "):
        ExporterClient(url)


def test_a_password_in_the_url_is_refused() -> None:
    with pytest.raises(ConfigError, match="leave name and password to"):
        ExporterClient("http://ada:secret@gpu-07")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ("--once --url http://gpu-07 --simulate dual-a10", "give one of them"),
        ("--simulate dual-a10", "top needs a terminal; give --once"),
        ("--every 10ms", "write a duration from 1s to 1m"),
    ],
)
def test_options_that_make_no_sense_are_refused(capsys: pytest.CaptureFixture[str], arguments: str, said: str) -> None:
    assert run_cli(group, ["top", *arguments.split()]) == 2
    assert said in capsys.readouterr().err


def test_an_exporter_that_falls_silent_leaves_the_last_verdict_with_its_age(view: HostView) -> None:
    answers = [view]

    def look() -> HostView:
        if not answers:
            raise ExporterUnreachable("http://x does not answer: gone")
        return answers.pop()

    watch = Watch(look, "http://x", 2)
    assert watch.frame.trouble == "waiting for http://x"
    watch.look()
    assert (watch.frame.view, watch.frame.trouble) == (view, "")
    watch.look()
    assert watch.frame.view == view
    assert re.fullmatch(r"http://x does not answer: gone; what follows is \d+ s old", watch.frame.trouble)


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
        (32, "GPU CLASS     BUSY PCIE"),
        (50, "GPU CLASS     FOR BUSY TEMP PCIE       ON IT"),
        (64, "GPU CLASS     FOR BUSY     POWER TEMP PCIE       ON IT"),
        (100, "GPU CLASS     FOR BUSY     POWER TEMP    MEMORY PCIE       ON IT"),
    ],
)
def test_a_narrow_terminal_leaves_out_columns_instead_of_cutting_them(
    view: HostView, columns: int, expected: str
) -> None:
    lines = drawn(Frame(view, "this host"), columns)
    (heading,) = (line for line in lines if line.startswith("GPU CLASS"))
    assert heading.split() == expected.split()
    rows = lines[lines.index(heading) + 1 :][: len(view.gpus)]
    assert all(len(row) <= columns for row in rows)
    assert any(row.split()[:2] == ["5", "pcie_link"] for row in rows)
    assert not any("…" in row.partition(" pod ")[0] for row in rows)
