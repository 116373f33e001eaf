import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress

import pytest
from tests.guarded_server import bound, read_all, run, send_on, status
from tests.web_sources import PAGE, Gate, Host

from gpu_triage.serve.connection import Limits

SCRAPE = b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n"
LAST_SCRAPE = b"GET /metrics HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"
SELECTION = b"GET /metrics?name[]=gpu_up HTTP/1.1\r\nHost: h\r\n\r\n"


@contextmanager
def serving(
    limits: Limits | None = None, host: Host | None = None, max_requests: int = 40
) -> Iterator[Callable[[], socket.socket]]:
    """A running server, as a maker of connections to it."""
    server, (port,) = bound(host, limits=limits, max_requests=max_requests)
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
    with serving(Limits(write_seconds=0.3), Host(body), max_requests=1) as connect:
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
