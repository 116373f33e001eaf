"""The daemon's doors as its host sees them: a web configuration file, a Unix socket, sockets of systemd."""

import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.certificates import Authority
from tests.conftest import RequiresTool
from tests.e2e.processes import end, prometheus, started, wait_for

from gpu_triage.serve.passwords import hashed

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
