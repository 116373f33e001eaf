import os
import signal
import socket
import threading
from contextlib import ExitStack
from http.client import HTTPConnection, HTTPSConnection
from pathlib import Path

import pytest
from tests.certificates import Authority, trusting_context
from tests.guarded_server import bound, run
from tests.web_sources import Gate, Host

from gpu_triage.serve.connection import Limits
from gpu_triage.serve.security import SecuritySource

SCRAPE = b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n"
SELECTION = b"GET /metrics?name[]=gpu_up HTTP/1.1\r\nHost: h\r\n\r\n"


def connect(port: int) -> socket.socket:
    return socket.create_connection(("127.0.0.1", port), timeout=5)


def healthy(client: HTTPConnection) -> bool:
    client.request("GET", "/-/healthy")
    answer = client.getresponse().read()
    client.close()
    return answer == b"healthy\n"


def test_every_address_is_served() -> None:
    server, both = bound(count=2)
    with run(server):
        assert all(healthy(HTTPConnection("127.0.0.1", port, timeout=5)) for port in both)
    assert len(set(both)) == 2


def test_clients_that_come_before_the_loop_runs_are_served_by_it() -> None:
    server, (port,) = bound()
    with connect(port) as early:
        early.sendall(SCRAPE)
        with run(server):
            assert early.recv(65536).startswith(b"HTTP/1.1 200")


def test_the_same_bounds_hold_over_tls(tmp_path: Path) -> None:
    (tmp_path / "web.yml").write_text(Authority(tmp_path).server())
    trusting = trusting_context(tmp_path)
    security = SecuritySource(str(tmp_path / "web.yml"))
    server, (port,) = bound(Host(b"x" * 5_000_000), limits=Limits(request_seconds=0.3), security=security)
    with run(server), connect(port) as plain, connect(port) as mute:
        client = HTTPSConnection("127.0.0.1", port, timeout=5, context=trusting)
        client.request("GET", "/metrics")
        assert len(client.getresponse().read()) == 5_000_000
        assert healthy(client)
        plain.sendall(SCRAPE)
        assert plain.recv(65536).startswith(b"HTTP/1.1 400")
        assert mute.recv(65536) == b""  # no handshake in time
        with trusting.wrap_socket(connect(port), server_hostname="127.0.0.1") as dawdler:
            dawdler.sendall(b"GET / HT")
            assert dawdler.recv(65536) == b""
        with trusting.wrap_socket(connect(port), server_hostname="127.0.0.1") as hostile:
            hostile.sendall(b"nonsense\r\n\r\n")
            assert hostile.recv(65536).startswith(b"HTTP/1.1 400")


def test_stop_ends_the_server_whatever_its_clients_do(caplog: pytest.LogCaptureFixture) -> None:
    gate = Gate()
    server, (port,) = bound(Host(b"x" * 50_000_000, gate))
    with ExitStack() as stack:
        silent, begun, idle, unread, held, refused = (stack.enter_context(connect(port)) for _ in range(6))
        with run(server):
            begun.sendall(b"GET / HT")
            idle.sendall(b"GET /-/ready HTTP/1.1\r\nHost: h\r\n\r\n")
            assert idle.recv(65536).startswith(b"HTTP/1.1 200")
            unread.sendall(SCRAPE)
            assert unread.recv(1) == b"H"
            held.sendall(SELECTION)
            assert gate.reached.wait(5)
            refused.sendall(b"nonsense\r\n\r\n")
            assert refused.recv(65536).startswith(b"HTTP/1.1 400")
        assert silent.recv(1) == b""
        gate.opened.set()
    assert [record for record in caplog.records if record.levelname not in ("DEBUG", "INFO")] == []


def test_an_answer_in_progress_is_finished_when_the_server_stops() -> None:
    gate = Gate()
    server, (port,) = bound(Host(hold=gate), limits=Limits(stop_seconds=10))
    with connect(port) as client, run(server):
        client.sendall(SELECTION)
        assert gate.reached.wait(5)
        server.stop()
        gate.opened.set()
        with client.makefile("rb") as answer:
            assert answer.read().endswith(b"gpu_up 1\n")


def test_a_signal_handler_may_stop_the_server_in_the_main_thread() -> None:
    server, _ = bound()
    before = signal.signal(signal.SIGUSR2, lambda *_: server.stop())
    kill = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGUSR2))
    try:
        kill.start()
        server.run()
    finally:
        kill.join()
        signal.signal(signal.SIGUSR2, before)


def test_signals_are_left_to_the_program() -> None:
    handlers = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP)]
    seen: list[object] = []
    server, (port,) = bound()

    def look() -> None:
        with connect(port) as client:
            client.sendall(SCRAPE)
            client.recv(65536)
        seen.extend(signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGHUP))
        server.stop()

    thread = threading.Thread(target=look)
    thread.start()
    server.run()
    thread.join()
    assert seen == handlers


def test_stop_before_run_and_after_its_end_is_harmless() -> None:
    server, _ = bound()
    server.stop()
    server.run()
    server.stop()
