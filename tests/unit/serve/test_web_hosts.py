"""Which names of this server a client may use: a page in somebody's browser reaches it by a name of its own choice."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from tests.certificates import Authority, trusting_context
from tests.guarded_server import PASSWORDS, basic, port_of, read_all, status
from tests.logged import Log

from gpu_triage.serve.security import AllowedHosts, SecuritySource

NAMES = ("gpu-1", "gpu-1.example.com", ".cluster.example")
OK, BAD_REQUEST, UNAUTHORIZED, MISDIRECTED = 200, 400, 401, 421


def ask(port: int, head: str, context: ssl.SSLContext | None = None) -> bytes:
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
    with port_of(hosts=AllowedHosts(NAMES)) as port:
        yield port


@pytest.mark.parametrize(("host", "expected"), [(host, expected) for expected in HOSTS for host in HOSTS[expected]])
def test_only_the_servers_own_names_are_answered(plain: int, host: str, expected: int) -> None:
    assert status(ask(plain, get(host))) == expected


@pytest.mark.parametrize("path", ["/", "/metrics", "/api/v1/verdict", "/runbooks/", "/-/healthy", "/-/ready", "/none"])
def test_every_path_is_guarded_and_the_refusal_names_the_option(plain: int, path: str) -> None:
    answer = ask(plain, get("attacker.example", path))
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
    assert status(ask(plain, head)) == expected


def test_without_names_every_host_is_answered() -> None:
    with port_of() as port:
        assert status(ask(port, get("attacker.example"))) == OK
        assert status(ask(port, "GET / HTTP/1.0\r\n\r\n")) == OK


def test_the_names_hold_over_tls_too_and_before_the_password(tmp_path: Path) -> None:
    (tmp_path / "web.yml").write_text(Authority(tmp_path).server() + PASSWORDS)
    trusting = trusting_context(tmp_path)
    password = f"Authorization: {basic('prometheus', 'scrape')}"
    with port_of(security=SecuritySource(str(tmp_path / "web.yml")), hosts=AllowedHosts(NAMES)) as port:
        assert status(ask(port, get("gpu-1:9836", "/metrics", password), trusting)) == OK
        assert status(ask(port, get("gpu-1:9836", "/metrics"), trusting)) == UNAUTHORIZED
        assert status(ask(port, get("attacker.example", "/metrics", password), trusting)) == MISDIRECTED
        assert status(ask(port, get("attacker.example", "/metrics"), trusting)) == MISDIRECTED


def test_a_refusal_is_logged_with_the_name_once_and_not_again_for_ten_minutes() -> None:
    log = Log()
    with port_of(hosts=AllowedHosts(("gpu-1",))) as port:
        for number in range(5):
            ask(port, get(f"n{number}.attacker.example"))
    (line,) = log.lines("request refused")
    assert line["host"] == "n0.attacker.example"
    assert "--web.allowed-hosts" in line["cause"]
