"""What the application answers, and by which names of the server: a page in a browser reaches it by one of its own."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path

import pytest
from tests.certificates import Authority, trusting_context
from tests.guarded_server import PASSWORDS, basic, port_of, read_all, served, status
from tests.logged import Log
from tests.web_sources import LINES, OPENMETRICS, PAGE, VERDICT, Gate, Host

from gpu_triage.errors import ConfigError
from gpu_triage.options.config import Config
from gpu_triage.serve.app import WebApp
from gpu_triage.serve.messages import RETRY, Answer
from gpu_triage.serve.security import SecuritySource

BODY = b"gpu_up 1\n" * 100


@pytest.fixture
def host() -> Host:
    return Host(BODY)


@pytest.fixture
def client(host: Host) -> Iterator[HTTPConnection]:
    with port_of(host, wall=lambda: 0.0) as port:
        connection = HTTPConnection("127.0.0.1", port, timeout=5)
        yield connection
        connection.close()


def ask(client: HTTPConnection, path: str, method: str = "GET", **headers: str) -> tuple[HTTPResponse, bytes]:
    client.request(method, path, headers={key.replace("_", "-"): value for key, value in headers.items()})
    response = client.getresponse()
    return response, response.read()


def test_a_scrape_gets_the_page_of_the_source_and_is_counted_once(client: HTTPConnection, host: Host) -> None:
    response, body = ask(client, "/metrics", Accept=OPENMETRICS)
    assert (response.status, body) == (200, BODY)
    assert response.headers["Content-Type"] == OPENMETRICS
    assert response.headers["Vary"] == "accept, accept-encoding"
    assert response.headers["Cache-Control"] == "no-store"
    assert response.headers["X-Content-Type-Options"] == "nosniff"
    assert response.headers["Date"] == "Thu, 01 Jan 1970 00:00:00 GMT"
    assert "Server" not in response.headers
    assert host.asked == [(OPENMETRICS, (), False)]
    assert host.scrapes == 1


def test_gzip_is_sent_only_to_those_who_take_it(client: HTTPConnection, host: Host) -> None:
    plain, _ = ask(client, "/metrics", Accept_Encoding="gzip;q=0, *")
    zipped, _ = ask(client, "/metrics", Accept_Encoding="br, gzip;q=0.5")
    assert plain.headers["Content-Encoding"] is None
    assert zipped.headers["Content-Encoding"] == "gzip"
    assert [gzip for _, _, gzip in host.asked] == [False, True]


def test_names_select_families(client: HTTPConnection, host: Host) -> None:
    response, _ = ask(client, "/metrics?name[]=gpu_up&name%5B%5D=gpu_info&name[]=gpu_up&other=1")
    assert response.status == 200
    assert host.asked == [("", ("gpu_up", "gpu_info"), False)]


@pytest.mark.parametrize("query", ["name[]=" + "a" * 257, "&".join(["name[]=a"] * 257)])
def test_an_immoderate_selection_is_refused_and_not_counted(client: HTTPConnection, host: Host, query: str) -> None:
    response, body = ask(client, f"/metrics?{query}")
    assert response.status == 400
    assert len(body) < 80
    assert (host.asked, host.scrapes) == ([], 0)


@pytest.mark.parametrize(
    "path",
    [
        *("/metrics", "/", "/api/v1/verdict", "/-/healthy", "/-/ready", "/nowhere"),
        *("/runbooks/GpuLost", "/runbooks/", "/runbooks", "/runbooks/nothing"),
    ],
)
def test_head_answers_as_get_but_for_the_body(client: HTTPConnection, path: str) -> None:
    got, body = ask(client, path)
    headed, nothing = ask(client, path, "HEAD")
    again, same = ask(client, path)
    assert (nothing, same) == (b"", body)
    assert again.status == got.status
    assert headed.status == got.status
    assert headed.getheaders() == got.getheaders()
    assert int(headed.headers["Content-Length"]) == len(body) > 0


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "TRACE"])
@pytest.mark.parametrize("path", ["/metrics", "/", "/api/v1/verdict", "/-/healthy", "/runbooks/GpuLost"])
def test_other_methods_are_told_what_is_allowed(client: HTTPConnection, path: str, method: str) -> None:
    response, _ = ask(client, path, method)
    assert response.status == 405
    assert response.headers["Allow"] == "GET, HEAD"


def test_the_probes_tell_what_is_wrong(client: HTTPConnection, host: Host) -> None:
    assert [ask(client, path)[1] for path in ("/-/healthy", "/-/ready")] == [b"healthy\n", b"ready\n"]
    host.dead, host.unready = "the sampler stands still", "first samples of GPU 3"
    healthy, why_dead = ask(client, "/-/healthy")
    ready, why_unready = ask(client, "/-/ready")
    assert (healthy.status, why_dead) == (503, b"the sampler stands still\n")
    assert (ready.status, why_unready) == (503, b"first samples of GPU 3\n")


PRIVATE = {"Content-Security-Policy": "default-src 'none'", "Referrer-Policy": "no-referrer"}
NOT_YET = Answer(503, b'{"error": "waiting for the driver"}', "application/json", (RETRY,))
ANSWERS = {
    "page": ("/", "*/*", PAGE, {"Content-Type": "text/html; charset=utf-8", **PRIVATE}),
    "verdict": ("/api/v1/verdict", "*/*", VERDICT, {"Content-Type": "application/json", "Vary": "accept"}),
    "for a script": ("/api/v1/verdict", "text/plain", LINES, {"Content-Type": LINES.content_type, "Vary": "accept"}),
    "not yet": ("/api/v1/verdict", "*/*", NOT_YET, {"Content-Type": "application/json", "Retry-After": "1"}),
}


@pytest.mark.parametrize(("path", "accept", "answer", "headers"), ANSWERS.values(), ids=ANSWERS)
def test_what_is_judged_is_answered_as_it_is_wanted_and_never_kept(
    client: HTTPConnection, host: Host, path: str, *, accept: str, answer: Answer, headers: dict[str, str]
) -> None:
    host.given = NOT_YET if answer is NOT_YET else VERDICT
    response, body = ask(client, path, Accept=accept)
    assert (response.status, body) == (answer.status, answer.body)
    wanted = {"Cache-Control": "no-store", **headers}
    assert {name: response.headers[name] for name in wanted} == wanted


def test_those_who_ask_while_the_host_is_judged_share_one_verdict_and_probes_are_answered() -> None:
    gate = Gate()
    host = Host(hold=gate)
    with port_of(host) as port:
        waiting = [HTTPConnection("127.0.0.1", port, timeout=5) for _ in range(5)]
        for each in waiting:
            each.request("GET", "/api/v1/verdict")
        assert gate.reached.wait(5)
        probe = HTTPConnection("127.0.0.1", port, timeout=5)
        assert ask(probe, "/-/healthy")[0].status == 200
        gate.opened.set()
        assert {each.getresponse().read() for each in waiting} == {host.given.body}
        for each in (*waiting, probe):
            each.close()
    assert host.judged == ["verdict"]


def test_an_error_inside_is_logged_once(client: HTTPConnection, host: Host, caplog: pytest.LogCaptureFixture) -> None:
    def scrape() -> tuple[int, bytes]:
        response, body = ask(client, "/metrics")
        return response.status, body

    host.broken = True
    assert [scrape(), scrape()] == [(500, b"internal error\n")] * 2
    assert [record.getMessage() for record in caplog.records] == ["cannot answer /metrics"]
    host.broken = False
    assert scrape()[0] == 200
    host.broken = True
    scrape()
    assert len(caplog.records) == 2
    assert host.scrapes == 1
    assert ask(client, "/")[1] == b"internal error\n"


def test_scrapes_beyond_the_limit_are_told_to_come_back_and_probes_are_still_answered() -> None:
    gate = Gate()
    host = Host(BODY, gate)
    with port_of(host, config=Config(web_max_requests=1)) as port:
        slow, quick = (HTTPConnection("127.0.0.1", port, timeout=5) for _ in range(2))
        slow.request("GET", "/metrics?name[]=gpu_up")
        assert gate.reached.wait(5)
        busy, _ = ask(quick, "/metrics")
        healthy, _ = ask(quick, "/-/healthy")
        gate.opened.set()
        assert slow.getresponse().read() == BODY
        again, _ = ask(quick, "/metrics")
        slow.close()
        quick.close()
    assert (busy.status, busy.headers["Retry-After"]) == (503, "1")
    assert (healthy.status, again.status) == (200, 200)
    assert host.scrapes == 2


@pytest.mark.parametrize(
    "path", ["/", "metrics", "", "/-/ready", "/api/v1/verdict", "/runbooks", "/runbooks/", "/runbooks/metrics"]
)
def test_a_telemetry_path_that_is_taken_is_a_startup_error(host: Host, path: str) -> None:
    with pytest.raises(ConfigError, match=r"--web\.telemetry-path"):
        WebApp(served(host), Config(web_telemetry_path=path))


NAMED = Config(web_allowed_hosts=("gpu-1", "gpu-1.example.com", ".cluster.example"))
OK, BAD_REQUEST, UNAUTHORIZED, MISDIRECTED = 200, 400, 401, 421


def ask_raw(port: int, head: str, context: ssl.SSLContext | None = None) -> bytes:
    """All that comes back for a head whose lines end in CRLF."""
    with ExitStack() as stack:
        client: socket.socket = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=5))
        if context is not None:
            client = stack.enter_context(context.wrap_socket(client, server_hostname="127.0.0.1"))
        client.sendall(head.encode("latin-1"))
        answer = read_all(client)
        assert answer.count(b"HTTP/1.1 ") == 1
        return answer


def get(host: str, path: str = "/", *headers: str) -> str:
    lines = (f"GET {path} HTTP/1.1", f"Host: {host}", "Connection: close", *headers)
    return "".join(f"{line}\r\n" for line in lines) + "\r\n"


HOSTS = {
    OK: (
        *("gpu-1", "gpu-1:9836", "gpu-1:80", "gpu-1:", "GPU-1.Example.COM", "gpu-1.example.com.:9836"),
        *("a.b.cluster.example", "cluster.example"),  # an allowed domain, and below it
        *("127.0.0.1:9836", "203.0.113.7", "[::1]:9836", "[2001:db8::7]", "[fe80::1%25eth0]:9836", "localhost:9836"),
    ),
    MISDIRECTED: (
        *("attacker.example", "attacker.example:9836", "x.gpu-1", "gpu-1.attacker.example", "evilcluster.example"),
        *("127.0.0.1.attacker.example", "localhost.attacker.example", "gpu-1..", "gpu-1%2eexample.com"),
        *("0x7f000001", "2130706433", "", ":9836"),  # an address in other digits, and none
    ),
    BAD_REQUEST: (
        *("gpu-1, attacker.example", "attacker@gpu-1", "gpu-1/x", "http://gpu-1", "[::1", "[gpu-1]", "[127.0.0.1]"),
        *("[]", "[::gpu]", "gpu-1:http", "gpü-1"),
    ),
}


@pytest.fixture(scope="module")
def plain() -> Iterator[int]:
    with port_of(config=NAMED) as port:
        yield port


@pytest.mark.parametrize(("host", "expected"), [(host, expected) for expected in HOSTS for host in HOSTS[expected]])
def test_only_the_servers_own_names_are_answered(plain: int, host: str, expected: int) -> None:
    assert status(ask_raw(plain, get(host))) == expected


@pytest.mark.parametrize("path", ["/", "/metrics", "/api/v1/verdict", "/runbooks/", "/-/healthy", "/-/ready", "/none"])
def test_every_path_is_guarded_and_the_refusal_names_the_option(plain: int, path: str) -> None:
    answer = ask_raw(plain, get("attacker.example", path))
    assert status(answer) == MISDIRECTED
    assert b"--web.allowed-hosts" in answer
    assert b"attacker" not in answer


MISSING = {
    "HTTP/1.1 without a host": ("GET / HTTP/1.1\r\n\r\n", BAD_REQUEST),
    "two hosts": ("GET / HTTP/1.1\r\nHost: gpu-1\r\nHost: attacker.example\r\n\r\n", BAD_REQUEST),
    "one host twice": ("GET / HTTP/1.1\r\nHost: gpu-1\r\nHost: gpu-1\r\n\r\n", BAD_REQUEST),
    "two hosts in HTTP/1.0": ("GET / HTTP/1.0\r\nHost: gpu-1\r\nHost: attacker.example\r\n\r\n", BAD_REQUEST),
    "HTTP/1.0 without a host": ("GET / HTTP/1.0\r\n\r\n", MISDIRECTED),
    "HTTP/1.0 with one": ("GET / HTTP/1.0\r\nHost: gpu-1\r\n\r\n", OK),
    "a target that names another": ("GET http://gpu-1/ HTTP/1.1\r\nHost: attacker.example\r\n\r\n", BAD_REQUEST),
    "a forwarded host": (get("attacker.example", "/", "X-Forwarded-Host: gpu-1", "Forwarded: host=gpu-1"), MISDIRECTED),
}


@pytest.mark.parametrize(("head", "expected"), MISSING.values(), ids=MISSING)
def test_a_host_that_is_missing_or_ambiguous_is_not_guessed(plain: int, head: str, expected: int) -> None:
    assert status(ask_raw(plain, head)) == expected


def test_without_names_every_host_is_answered() -> None:
    with port_of() as port:
        assert status(ask_raw(port, get("attacker.example"))) == OK
        assert status(ask_raw(port, "GET / HTTP/1.0\r\n\r\n")) == OK


def test_the_names_hold_over_tls_too_and_before_the_password(tmp_path: Path) -> None:
    (tmp_path / "web.yml").write_text(Authority(tmp_path).server() + PASSWORDS)
    trusting = trusting_context(tmp_path)
    password = f"Authorization: {basic('prometheus', 'scrape')}"
    with port_of(security=SecuritySource(str(tmp_path / "web.yml")), config=NAMED) as port:
        assert status(ask_raw(port, get("gpu-1:9836", "/metrics", password), trusting)) == OK
        assert status(ask_raw(port, get("gpu-1:9836", "/metrics"), trusting)) == UNAUTHORIZED
        assert status(ask_raw(port, get("attacker.example", "/metrics", password), trusting)) == MISDIRECTED
        assert status(ask_raw(port, get("attacker.example", "/metrics"), trusting)) == MISDIRECTED


def test_a_refusal_is_logged_with_the_name_once_and_not_again_for_ten_minutes() -> None:
    log = Log()
    with port_of(config=NAMED) as port:
        for number in range(5):
            ask_raw(port, get(f"n{number}.attacker.example"))
    (line,) = log.lines("request refused")
    assert line["host"] == "n0.attacker.example"
    assert "--web.allowed-hosts" in line["cause"]
