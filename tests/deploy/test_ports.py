import socket
import subprocess
import sys

import pytest
from deploy.demo import processes
from deploy.demo.processes import StackError, free_port


def test_no_two_programs_are_given_the_same_port(monkeypatch: pytest.MonkeyPatch) -> None:
    claims: list[socket.socket] = []
    monkeypatch.setattr(processes, "_PORTS", range(20_000, 20_040))
    monkeypatch.setattr(processes, "_claims", claims)
    ours = [free_port() for _ in range(10)]
    script = (
        "from deploy.demo import processes\n"
        "processes._PORTS = range(20_000, 20_040)\n"
        "print(*(processes.free_port() for _ in range(10)))"
    )
    answer = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    theirs = [int(port) for port in answer.stdout.split()]
    assert len({*ours, *theirs}) == 20
    for claim in claims:
        claim.close()


def test_a_port_that_somebody_listens_on_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        taken = listener.getsockname()[1]
        monkeypatch.setattr(processes, "_PORTS", range(taken, taken + 1))
        with pytest.raises(StackError, match="no port between"):
            free_port()
