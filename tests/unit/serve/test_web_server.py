import os
import socket
from contextlib import ExitStack, closing
from http.client import HTTPConnection
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.guarded_server import bound, run
from tests.web_sources import Gate, Host

from gpu_triage.errors import AddressUnavailable, ConfigError
from gpu_triage.serve.connection import Limits
from gpu_triage.serve.listen import browser_url, close_listener, inherited_listeners, listener_url, open_listeners
from gpu_triage.serve.messages import QueryError, Request, accepts_gzip, metric_names

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


def test_stop_before_run_and_after_its_end_is_harmless() -> None:
    server, _ = bound()
    server.stop()
    server.run()
    server.stop()


TAKES_GZIP = (
    *("gzip", "GZIP", "x-gzip", "deflate, gzip ; q=0.1", "*", "gzip;level=9", "," * 2000 + "gzip", "gzip" + ";" * 4000),
)
TAKES_NONE = (
    *("", "gzip;q=0", "gzip;q=0.000", "gzip;q=0, *;q=1", "*;q=0", "identity", "br;q=1.0, deflate", "gzipped", "ÿþ"),
    *("gzip;q=high", "gzip;q=2", "gzip;q=nan", "gzip;q=1e999", "gzip;q=-1", "," * 2048 + "gzip"),
)


@pytest.mark.parametrize("accept_encoding", [*TAKES_GZIP, *TAKES_NONE], ids=lambda text: text[:20])
def test_gzip_is_read_by_its_weight(accept_encoding: str) -> None:
    assert accepts_gzip(accept_encoding) is (accept_encoding in TAKES_GZIP)


@given(st.text(alphabet="gzip*;q=01., \t\x00é-"))
def test_no_accept_encoding_breaks_the_parser(accept_encoding: str) -> None:
    assert accepts_gzip(accept_encoding) in (True, False)


@given(st.binary(max_size=400))
def test_no_query_string_breaks_the_parser(query: bytes) -> None:
    try:
        names = metric_names(query)
    except QueryError as error:
        assert len(str(error)) < 80  # noqa: PT017 - either outcome is fine, this is what one must be like
    else:
        assert all(0 < len(name) <= 256 for name in names)


def test_a_selection_of_the_greatest_size_is_taken() -> None:
    longest = "a" * 256
    query = "&".join(f"name[]={index}" for index in range(255)) + f"&name[]={longest}"
    assert metric_names(query.encode())[-1] == longest


def test_repeated_headers_are_joined() -> None:
    headers = ((b"accept", b"text/plain"), (b"host", b"x"), (b"accept", b"*/*;q=0.1"))
    request = Request("GET", "/", b"", headers, "")
    assert request.header(b"accept") == "text/plain, */*;q=0.1"
    assert request.header(b"cookie") == ""


def _loopbacks() -> list[str]:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return ["127.0.0.1"]
    return ["127.0.0.1", "::1"]


@pytest.mark.parametrize("loopback", _loopbacks())
@pytest.mark.parametrize("alone", [False, True])
def test_one_address_serves_itself_and_a_port_alone_every_family(loopback: str, *, alone: bool) -> None:
    bracketed = f"[{loopback}]" if ":" in loopback else loopback
    (listener,) = open_listeners([":0" if alone else f"{bracketed}:0"])
    with closing(listener):
        port = listener.getsockname()[1]
        assert alone or listener_url(listener, "http") == f"http://{bracketed}:{port}"
        socket.create_connection((loopback, port), timeout=5).close()


def test_accepted_connections_send_short_answers_at_once() -> None:
    (listener,) = open_listeners(["127.0.0.1:0"])
    with closing(listener), socket.create_connection(listener.getsockname(), timeout=5):
        listener.settimeout(5)
        accepted, _ = listener.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_a_name_serves_all_its_addresses() -> None:
    with ExitStack() as stack:
        listeners = [stack.enter_context(listener) for listener in open_listeners(["localhost:0"])]
        assert {listener.getsockname()[0] for listener in listeners} <= {"127.0.0.1", "::1"}
        assert listeners


def test_a_kernel_without_ipv6_serves_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "AF_INET6", 45)  # a family no kernel builds by default: bind fails as without v6
    (listener,) = open_listeners([":0"])
    with closing(listener):
        assert listener.family == socket.AF_INET


def test_a_port_in_use_is_named_and_nothing_stays_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, socket.create_server(("127.0.0.1", 0)) as other:
        free_port = other.getsockname()[1]
        other.close()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        refusal = f"--web.listen-address '{address}': Address already in use; end what is served there"
        with pytest.raises(AddressUnavailable, match=refusal):
            open_listeners([f"127.0.0.1:{free_port}", address])
        with socket.create_server(("127.0.0.1", free_port)):
            pass


@pytest.mark.parametrize(
    ("address", "error", "refusal"),
    [
        ("9836", ConfigError, r"--web\.listen-address"),
        ("unix:gpu.sock", ConfigError, r"--web\.listen-address"),
        ("192.0.2.1:0", AddressUnavailable, r"'192\.0\.2\.1:0': Cannot assign requested address; write another"),
    ],
)
def test_what_is_no_address_of_this_host_is_named(address: str, error: type[Exception], refusal: str) -> None:
    with pytest.raises(error, match=refusal):
        open_listeners([address])


def test_a_unix_socket_replaces_that_of_a_killed_process_and_goes_with_its_listener(tmp_path: Path) -> None:
    path = tmp_path / "gpu.sock"
    open_listeners([f"unix:{path}"])[0].close()  # as one that is killed leaves it
    assert path.exists()
    (listener,) = open_listeners([f"unix:{path}"])
    assert listener_url(listener, "http") == f"http://unix:{path}:"
    with socket.socket(socket.AF_UNIX) as client:
        client.connect(str(path))
    close_listener(listener)
    assert not path.exists()


def test_a_unix_socket_that_is_served_or_a_file_that_is_none_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "gpu.sock"
    (listener,) = open_listeners([f"unix:{path}"])
    with pytest.raises(AddressUnavailable, match=rf"'unix:{path}': Address already in use"):
        open_listeners([f"unix:{path}"])
    close_listener(listener)
    path.write_text("precious")
    with pytest.raises(ConfigError, match="a non-socket file exists at this path"):
        open_listeners([f"unix:{path}"])
    assert path.read_text() == "precious"
    with pytest.raises(ConfigError, match="No such file or directory"):
        open_listeners([f"unix:{tmp_path}/nowhere/gpu.sock"])


@pytest.mark.parametrize(
    "environment",
    [
        {},
        {"LISTEN_FDS": "1"},
        {"LISTEN_PID": "1", "LISTEN_FDS": "1"},
        {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "0"},
        {"LISTEN_PID": str(os.getpid()), "LISTEN_FDS": "one"},
    ],
)
def test_without_a_socket_of_systemd_for_this_process_there_is_none(environment: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="systemd handed over no socket; start this by its socket unit"):
        inherited_listeners(environment)
    assert environment == {}


@pytest.mark.parametrize(
    ("urls", "page"),
    [
        (["http://127.0.0.1:9836"], "http://127.0.0.1:9836"),
        (["http://unix:/run/gpu.sock:", "https://[::]:9836"], "https://localhost:9836"),
        (["http://0.0.0.0:1", "http://127.0.0.2:2"], "http://localhost:1"),
        (["http://unix:/run/gpu.sock:"], None),
    ],
)
def test_a_person_is_told_a_page_that_a_browser_of_this_host_opens(urls: list[str], page: str | None) -> None:
    assert browser_url(urls) == page
