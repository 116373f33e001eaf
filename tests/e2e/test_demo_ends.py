"""``make demo`` leaves nothing behind, however it is ended."""

import os
import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conftest import RequiresTool
from tests.e2e.processes import WAIT_SECONDS

ADDRESS = re.compile(r"http://127\.0\.0\.1:(\d+)/")


@pytest.mark.parametrize("ending", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], ids=lambda number: number.name)
def test_an_ended_demo_leaves_nothing(
    ending: signal.Signals, repository: Path, tmp_path: Path, requires_tool: RequiresTool
) -> None:
    requires_tool("prometheus")
    requires_tool("prometheus-alertmanager")
    with subprocess.Popen(
        [sys.executable, "-m", "deploy.demo", "idle-downshift"],
        cwd=repository,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    ) as demonstration:
        assert demonstration.stdout is not None
        ports = set()
        for line in demonstration.stdout:
            ports |= set(map(int, ADDRESS.findall(line)))
            if "Ctrl-C" in line:
                break
        demonstration.send_signal(ending)
        demonstration.send_signal(ending)
        demonstration.communicate(timeout=WAIT_SECONDS)
    assert demonstration.returncode == 0
    assert len(ports) == 3
    assert [port for port in ports if _answers(port)] == []
    assert list(tmp_path.iterdir()) == []


def _answers(port: int) -> bool:
    with socket.socket() as client:
        return client.connect_ex(("127.0.0.1", port)) == 0
