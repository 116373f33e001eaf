import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.guarded_server import DEFAULTS, bound, read_all, run, send_on, status
from tests.web_sources import PAGE, Gate, Host

from gpu_triage.errors import AddressUnavailable, ConfigError
from gpu_triage.options.config import Config
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


LAST_SCRAPE = b"GET /metrics HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"


@contextmanager
def serving(
    limits: Limits | None = None, host: Host | None = None, config: Config = DEFAULTS
) -> Iterator[Callable[[], socket.socket]]:
    """A running server, as a maker of connections to it."""
    server, (port,) = bound(host, limits=limits, config=config)
    with run(server), ExitStack() as stack:
        yield lambda: stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5))


def read_one(client: socket.socket) -> bytes:
    """One answer of metrics; the connection stays open."""
    received = b""
    while not received.endswith(b"gpu_up 1\n"):
        chunk = client.recv(65536)
        assert chunk
        received += chunk
    return received


def scrape(client: socket.socket, path: bytes = b"/metrics") -> int:
    client.sendall(LAST_SCRAPE.replace(b"/metrics", path))
    return status(read_all(client))


def test_a_refused_head_request_gets_no_body() -> None:
    with serving() as connect:
        client = connect()
        client.sendall(b"HEAD / HTTP/1.1\r\nHost: h\r\nContent-Length: 9999\r\n\r\n")
        answer = read_all(client)
    assert status(answer) == 413
    assert answer.endswith(b"\r\n\r\n")


def test_a_refused_client_that_goes_on_sending_is_cut() -> None:
    with serving(Limits(linger_seconds=0.1)) as connect:
        client = connect()
        client.sendall(b"nonsense\r\n\r\n")
        assert status(read_all(client)) == 400
        with pytest.raises(ConnectionError):
            send_on(client)


def test_a_refused_client_may_go_on_sending_for_a_moment_and_reads_why() -> None:
    with serving(Limits(linger_seconds=10)) as connect:
        client = connect()
        for _ in range(12):
            client.sendall(b"nonsense\r\n\r\n")
            time.sleep(0.03)  # a server that is gone by now would reset the connection
        assert status(read_all(client)) == 400


def test_what_follows_the_last_request_is_dropped() -> None:
    gate = Gate()
    with serving(host=Host(hold=gate)) as connect:
        client = connect()
        client.sendall(SELECTION.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
        assert gate.reached.wait(5)
        client.sendall(b"nonsense\r\n\r\n")
        assert scrape(connect(), b"/-/healthy") == 200  # by now the server has read that, too
        gate.opened.set()
        answer = read_all(client)
    assert (status(answer), answer.count(b"HTTP/1.1 ")) == (200, 1)


def test_a_small_body_is_left_unread_and_the_connection_lives_on() -> None:
    with serving() as connect:
        client = connect()
        client.sendall(b"GET /-/healthy HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello" + LAST_SCRAPE)
        assert read_all(client).count(b"HTTP/1.1 200 OK") == 2


SLOW = {
    "silent": b"",
    "half a head": b"GET /metrics HTTP/1.1\r\nHost: h\r\nX-Slow: ",
    "half a body": b"GET /metrics HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhe",
    "half a second head": SCRAPE + b"GET /metrics HTT",
}


@pytest.mark.parametrize("sent", SLOW.values(), ids=SLOW)
def test_a_client_that_dawdles_over_its_request_is_cut(sent: bytes) -> None:
    with serving(Limits(request_seconds=0.2)) as connect:
        client = connect()
        client.sendall(sent)
        assert read_all(client).count(b"200 OK") == sent.count(b"\r\n\r\n")


def test_a_client_that_sends_byte_by_byte_wins_no_time() -> None:
    with serving(Limits(request_seconds=0.2)) as connect:
        client = connect()
        client.sendall(b"GET / HTTP/1.1\r\nHost: h\r\nX: ")
        with pytest.raises(ConnectionError):
            send_on(client)


@pytest.mark.slow
def test_an_idle_connection_outlives_the_request_deadline_and_ends_in_time() -> None:
    assert Limits().idle_seconds > 2 * 60, "Prometheus keeps its connection between scrapes"
    with serving(Limits(request_seconds=0.1, idle_seconds=1)) as connect:
        client = connect()
        client.sendall(SCRAPE)
        assert read_one(client).startswith(b"HTTP/1.1 200")
        client.settimeout(0.4)
        with pytest.raises(TimeoutError):
            client.recv(1)
        client.settimeout(5)
        client.sendall(SCRAPE)
        assert read_all(client).startswith(b"HTTP/1.1 200")


def test_pipelined_requests_are_answered_in_order() -> None:
    paths = [b"/metrics", b"/nowhere", b"/metrics?name[]=a", b"/-/healthy", b"/"]
    with serving() as connect:
        client = connect()
        client.sendall(b"".join(b"GET %b HTTP/1.1\r\nHost: h\r\n\r\n" % path for path in paths[:-1]))
        client.sendall(b"GET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")
        answers = read_all(client).split(b"HTTP/1.1 ")[1:]
    assert [int(answer[:3]) for answer in answers] == [200, 404, 200, 200, 200]
    assert answers[-1].endswith(PAGE.body)


def test_more_pipelined_requests_than_fit_end_the_connection() -> None:
    with serving() as connect:
        client = connect()
        with suppress(ConnectionError):
            client.sendall(SELECTION * 10_000)
        assert read_all(client).count(b"200 OK") < 10_000
        assert scrape(connect()) == 200


@pytest.mark.parametrize("requests", [SCRAPE, SELECTION, SELECTION + SCRAPE + SELECTION])
def test_a_client_that_only_stopped_sending_is_still_answered(requests: bytes) -> None:
    with serving() as connect:
        client = connect()
        client.sendall(requests)
        client.shutdown(socket.SHUT_WR)
        assert read_all(client).count(b"gpu_up 1\n") == requests.count(b"GET")


def test_a_client_that_does_not_read_is_cut_in_time_and_takes_nobodys_place() -> None:
    body = b"x" * 50_000_000
    with serving(Limits(write_seconds=0.3), Host(body), Config(web_max_requests=1)) as connect:
        stalled = connect()
        stalled.sendall(SCRAPE)
        assert stalled.recv(1) == b"H"
        assert scrape(connect()) == 200
        assert stalled.recv(1) == b"T"
        with pytest.raises(ConnectionError):
            send_on(stalled)


def test_no_further_request_is_answered_before_the_client_took_its_answer() -> None:
    host = Host(b"x" * 50_000_000)
    with serving(host=host) as connect:
        client = connect()
        client.sendall(SCRAPE * 10)
        assert client.recv(1) == b"H"
        client.sendall(SCRAPE * 10)
        assert scrape(connect(), b"/-/healthy") == 200
        assert host.scrapes == 1


@pytest.mark.slow
def test_of_too_many_that_do_not_read_the_first_is_cut() -> None:
    body = b"x" * 50_000_000
    with serving(Limits(unread=2), Host(body)) as connect:
        clients = [connect() for _ in range(3)]
        for client in clients:
            client.sendall(LAST_SCRAPE)
            assert client.recv(1) == b"H"
        read = [len(read_all(client)) > len(body) for client in clients]
        assert read == [False, True, True]


def test_an_idle_connection_gives_way_to_a_new_one() -> None:
    with serving(Limits(connections=1)) as connect:
        idle = connect()
        idle.sendall(SCRAPE)
        assert read_one(idle).startswith(b"HTTP/1.1 200")
        assert scrape(connect()) == 200
        assert read_all(idle) == b""


def test_a_newcomer_is_refused_while_all_others_are_being_answered() -> None:
    gate = Gate()
    with serving(Limits(connections=1), Host(hold=gate)) as connect:
        busy = connect()
        busy.sendall(SELECTION)
        assert gate.reached.wait(5)
        assert read_all(connect()) == b""
        gate.opened.set()
        assert busy.recv(65536).startswith(b"HTTP/1.1 200")
