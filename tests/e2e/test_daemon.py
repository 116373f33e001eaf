"""The daemon as its host sees it: a process with signals, sockets, a log and an exit code."""

import json
import math
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest
from tests.certificates import Authority
from tests.conftest import RequiresTool
from tests.e2e.processes import Exporter, end, exporter, prometheus, started, wait_for
from tests.kubelet import kubelet

from gpu_triage.serve.passwords import hashed

LOADED = """
import atexit, json, sys
from gpu_triage.__main__ import main
atexit.register(lambda: open(sys.argv[-1] + ".modules", "w").write(json.dumps(sorted(sys.modules))))
main()
"""
"""The exporter; when it ends, it writes which modules it has loaded beside the file that its last argument names."""


@pytest.fixture(scope="module")
def simulated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Exporter]:
    """One that every test leaves as it found it."""
    with exporter(tmp_path_factory.mktemp("simulated"), "--simulate", "dual-a10") as running:
        yield running


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    with exporter(tmp_path, "--simulate", "dual-a10", "--log.format", "json") as running:
        running.process.send_signal(number)
        assert running.process.wait(10) == 0
        lines = [json.loads(line) for line in running.log.read_text().splitlines()]
        assert lines[-1]["msg"] == "stopping"
        assert lines[-1]["cause"] == number.name


def test_simulation_is_said_in_the_log_on_the_page_and_as_a_metric(simulated: Exporter) -> None:
    assert "gpu_exporter_simulated 1.0" in simulated.metrics()
    assert "SIMULATED" in simulated.log.read_text()
    assert "simulated" in simulated.get("/")[2].decode().lower()


def test_a_running_exporter_loads_no_tool_and_no_rules(tmp_path: Path) -> None:
    config = tmp_path / "config.yml"
    config.write_text("metrics: {profile: rules, exclude: [gpu_tensor_*]}")
    program = (sys.executable, "-c", LOADED)
    with exporter(tmp_path, "--simulate", "dual-a10", "--config.file", str(config), program=program) as running:
        assert "gpu_power_watts" in running.metrics()
        running.process.send_signal(signal.SIGTERM)
        running.process.wait(10)
    loaded = json.loads(config.with_name("config.yml.modules").read_text())
    of_cli = {name.removeprefix("gpu_triage.cli.") for name in loaded if name.startswith("gpu_triage.cli.")}
    assert of_cli == {"daemon", "machines", "main", "run", "simulation"}
    assert [name for name in loaded if name.startswith("gpu_triage.alerting")] == []


def test_gpus_are_released_and_acquired_by_signal(simulated: Exporter) -> None:
    simulated.process.send_signal(signal.SIGUSR1)
    wait_for(lambda: "gpu_exporter_gpus_released 1.0" in simulated.metrics())
    assert simulated.get("/-/healthy")[0] == 200
    simulated.process.send_signal(signal.SIGUSR2)
    wait_for(lambda: "gpu_driver_up 1.0" in simulated.metrics())
    assert "gpu_exporter_gpus_released 0.0" in simulated.metrics()


@pytest.mark.full
def test_gpus_are_released_and_acquired_over_http_only_where_that_is_enabled(tmp_path: Path) -> None:
    with exporter(tmp_path, "--simulate", "dual-a10", "--web.enable-lifecycle") as running:
        assert running.request("POST", "/-/release", Origin="http://evil.example")[0] == 403
        assert running.get("/-/release")[0] == 405
        assert running.request("POST", "/-/release")[0] == 202
        wait_for(lambda: "gpu_exporter_gpus_released 1.0" in running.metrics())
        assert running.request("POST", "/-/acquire")[0] == 202
        wait_for(lambda: "gpu_driver_up 1.0" in running.metrics())
    with exporter(tmp_path, "--simulate", "dual-a10") as running:
        assert running.request("POST", "/-/release")[0] == 404


def test_a_port_that_is_taken_ends_it_with_one_line_and_a_code_to_retry_after(simulated: Exporter) -> None:
    second = subprocess.run(
        [sys.executable, "-m", "gpu_triage", "serve", "--web.listen-address", simulated.address],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    assert second.returncode == 1
    assert simulated.address in second.stderr
    assert len(second.stderr.strip().splitlines()) == 1


def page_value(page: str, start: str) -> float:
    """The value of the first series whose line starts so; NaN, which equals nothing, while there is none."""
    return next((float(line.rpartition(" ")[2]) for line in page.splitlines() if line.startswith(start)), math.nan)


def test_a_kubelet_is_asked_and_one_that_hangs_does_not_hold_up_the_end(tmp_path: Path) -> None:
    socket, hanging, released = tmp_path / "kubelet.sock", Event(), Event()

    def answer() -> bytes:
        if hanging.is_set():
            released.wait()
        return b""

    success = 'gpu_exporter_collector_success{collector="pod_names"}'
    flags = ("--kubernetes.pod-resources-socket", str(socket), "--sample.medium", "1s")
    with kubelet(socket, answer), exporter(tmp_path, *flags) as running:
        try:
            wait_for(lambda: page_value(running.metrics(), success) == 1)
            hanging.set()
            wait_for(lambda: page_value(running.metrics(), success) == 0)
            running.process.send_signal(signal.SIGTERM)
            assert running.process.wait(10) == 0
        finally:
            released.set()


def test_sighup_reads_settings_again_and_a_bad_file_changes_nothing(tmp_path: Path) -> None:
    judge, web = tmp_path / "config.yml", tmp_path / "web.yml"
    judge.write_text("judge: {thermal.hw: {wait: 5m}}\n")
    web.write_text("http_server_config: {headers: {X-Frame-Options: deny}}\n")
    success = "gpu_exporter_judge_settings_reload_success"

    def settings() -> list[str]:
        return [each["words"] for each in json.loads(running.get("/api/v1/verdict")[2]).get("settings", [])]

    flags = ("--config.file", str(judge), "--web.config.file", str(web))
    with exporter(tmp_path, "--simulate", "dual-a10", *flags) as running:
        wait_for(lambda: settings() == ["thermal.hw waits 5 minutes instead of 10 minutes"])
        judge.write_text("judge: {thermal.hw: {wait: 7m}}\n")
        web.write_text("http_server_config: {headers: {X-Frame-Options: sameorigin}}\n")
        for _ in range(3):
            running.process.send_signal(signal.SIGHUP)
        wait_for(lambda: settings() == ["thermal.hw waits 7 minutes instead of 10 minutes"])
        wait_for(lambda: running.get("/-/healthy")[1].get("x-frame-options") == "sameorigin")
        assert page_value(running.metrics(), success) == 1
        judge.write_text("judge: {thermal.hw: {wait: 7}}\n")
        running.process.send_signal(signal.SIGHUP)
        wait_for(lambda: page_value(running.metrics(), success) == 0)
        assert settings() == ["thermal.hw waits 7 minutes instead of 10 minutes"]
        assert all(fact in running.log.read_text() for fact in ("thermal.hw.wait", "cause=SIGHUP"))
        assert running.process.poll() is None


SERVE = (sys.executable, "-m", "gpu_triage", "serve", "--simulate", "dual-a10")
BY_SYSTEMD = """
import os, sys
os.dup2(int(sys.argv[1]), 3)
os.set_inheritable(3, True)
os.environ["LISTEN_PID"], os.environ["LISTEN_FDS"] = str(os.getpid()), "1"
os.execv(sys.argv[2], sys.argv[2:])
"""
SCRAPE = """
global: {{scrape_interval: 1s, scrape_timeout: 1s}}
scrape_configs:
  - job_name: gpu
    scheme: https
    basic_auth: {{username: prometheus, password: scrape}}
    tls_config: {{ca_file: {folder}/ca.pem, cert_file: {folder}/client.pem, key_file: {folder}/client.key}}
    static_configs: [{{targets: ["{address}"]}}]
"""


@pytest.fixture
def guarded(tmp_path: Path) -> Iterator[str]:
    """The address of a daemon that wants a client certificate and a password."""
    authority = Authority(tmp_path)
    authority.issue("client", "DNS:prometheus")
    tls = authority.server("client_auth_type: RequireAndVerifyClientCert", "client_ca_file: ca.pem")
    (tmp_path / "web.yml").write_text(f"{tls}basic_auth_users:\n  prometheus: {hashed(b'scrape', 4)}\n")
    flags = ("--simulate", "dual-a10", "--web.config.file", str(tmp_path / "web.yml"))
    with started(tmp_path / "log", *flags) as running:
        assert f"https://{running.address}/" in running.log.read_text()
        yield running.address


def test_prometheus_scrapes_with_both_credentials(tmp_path: Path, guarded: str, requires_tool: RequiresTool) -> None:
    config = SCRAPE.format(folder=tmp_path, address=guarded)
    with prometheus(requires_tool("prometheus"), tmp_path, config) as query:
        wait_for(lambda: query("up == 1"))
        wait_for(lambda: query("gpu_exporter_web_config_reload_success == 1"))
        assert query("time() - gpu_exporter_web_config_last_reload_success_timestamp_seconds < 3600")


@pytest.mark.parametrize("family", [socket.AF_INET, socket.AF_UNIX])
def test_the_socket_of_systemd_is_served_and_left_to_systemd(tmp_path: Path, family: socket.AddressFamily) -> None:
    path = tmp_path / "gpu.sock"
    with socket.socket(family) as listener:
        listener.bind(str(path) if family == socket.AF_UNIX else ("127.0.0.1", 0))
        listener.listen()
        command = [sys.executable, "-c", BY_SYSTEMD, str(listener.fileno()), *SERVE, "--web.systemd-socket"]
        process = subprocess.Popen(command, pass_fds=[listener.fileno()], stderr=subprocess.DEVNULL)
        try:
            with socket.socket(family) as client:
                client.settimeout(30)
                client.connect(listener.getsockname())  # systemd's queue holds it until the daemon is up
                client.sendall(b"GET /-/healthy HTTP/1.1\r\nHost: h\r\n\r\n")
                assert client.recv(65536).startswith(b"HTTP/1.1 200")
        finally:
            end(process)
        assert process.returncode == 0
    assert path.exists() == (family == socket.AF_UNIX)
