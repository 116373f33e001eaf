"""Requests that no scraper sends: each gets the right status or none, and nothing behind it is taken for a request."""

import base64
import gzip
import http.client
import re
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.e2e.processes import wait_for
from tests.hostile.target import PASSWORD, USER, Target, probe, scrape, target

T = TypeVar("T")
CLOSED = 0  # the connection ends without a word

HOST = b"Host: h\r\nConnection: close\r\n"
HIDDEN = b"GET /-/healthy HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"  # what a request must not smuggle past


def get(path: bytes, *headers: bytes, method: bytes = b"GET") -> bytes:
    lines = b"".join(header + b"\r\n" for header in headers)
    return b"%b %b HTTP/1.1\r\n%b%b\r\n" % (method, path, HOST, lines)


PATHS = {
    200: (
        *(b"/metrics", b"/%6detrics", b"/metrics?", b"/metrics?" + b"%" * 2000),  # as it is, a letter encoded, queries
    ),
    404: (
        *(b"//metrics", b"/metrics/", b"/x/../metrics", b"/%2e%2e/metrics", b"/../../../../etc/passwd", b"/\\metrics"),
        *(b"/%2e%2e%2f%2e%2e%2fetc%2fpasswd", b"/metrics%00", b"/metrics%0d%0aX-Injected:%20yes", b"/%ff%fe", b"/%"),
        *(b"/%256detrics", b"/METRICS", b"/metrics#x", b"/metrics;x=y", b"/<script>", b"/favicon.ico"),
    ),
    400: (
        *(b"%2fmetrics", b"/metrics\x00", "/ü".encode(), b"http://other.example/metrics", b"other.example:443"),
        *(b"*", b""),
        *(b"/metrics /metrics", b"/metrics?" + b"a&" * 4000, b"/metrics?name[]=" + b"x" * 1000),
    ),
    431: (b"/" + b"x" * 100_000,),
}
HEADS = {
    "HTTP/2 without asking": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    "HTTP/3.0": (b"GET /metrics HTTP/3.0\r\n" + HOST + b"\r\n", 505),
    "HTTP/1.0": (b"GET /metrics HTTP/1.0\r\n\r\n", 200),
    "a request for a tunnel": (b"CONNECT h:1 HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "an upgrade": (get(b"/metrics", b"Upgrade: websocket", b"Connection: upgrade"), 200),
    "continue": (get(b"/metrics", b"Expect: 100-continue"), 200),
    "a method that is no word": (get(b"/metrics", method=b"G@T"), 400),
    "no method": (get(b"/metrics", method=b""), 400),
    "NUL in a header": (get(b"/metrics", b"A: b\x00c"), 400),
    "thousand headers": (get(b"/metrics", *(b"A%d: b" % n for n in range(1000))), 200),
    "two thousand headers": (get(b"/metrics", *(b"Abcdefgh%d: b" % n for n in range(2000))), 431),
    "a body that is sent, too": (get(b"/metrics", b"Content-Length: 300000") + b"x" * 300_000, 413),
    "a head without an end": (b"GET /metrics HTTP/1.1\r\nA: " + b"x" * 300_000, 431),
    "a line without an end": (b"GET /" + b"x" * 300_000, 431),
    "a long header": (get(b"/metrics", b"A: " + b"x" * 17_000), 431),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 64 + b"\r\n\r\n", 400),
}
CHUNK = b"0\r\n\r\n"
SMUGGLING = {
    411: (
        *((b"Content-Length: 4\r\nTransfer-Encoding: chunked", CHUNK), (b"Transfer-Encoding:\tchunked", CHUNK)),
        *((b"Transfer-Encoding: chunked\r\nContent-Length: 4", CHUNK), (b"Transfer-Encoding: CHUNKED", CHUNK)),
        (b"Transfer-Encoding: chunked", CHUNK),
    ),
    501: (
        (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", CHUNK),
        (b"Transfer-Encoding: gzip, chunked", CHUNK),
    ),
    400: (
        *((b"Transfer-Encoding : chunked", CHUNK), (b"Transfer-Encoding: \x0bchunked", CHUNK)),
        (b"Content-Length: 0\r\nContent-Length: 3", b"abc"),
        *((b"Content-Length: " + each, b"abc") for each in (b"0, 3", b"+3", b"-3", b"0x3", "٣".encode(), b"9" * 5000)),
        (b"Content-Length: ", b""),
    ),
    413: ((b"Content-Length: 99999999999", b"abc"),),
}


def _warnings(running: Target) -> list[str]:
    """What it has logged as a warning or an error. Once it is ready, it has said all there is to say of its start."""
    return re.findall(r"level=(?:warning|error).*", running.log)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """A daemon that is still well and quiet after all of this."""
    with target(tmp_path_factory.mktemp("daemon")) as running:
        before, warned = running.figures(), _warnings(running)
        yield running
        assert probe(running) == http.HTTPStatus.OK
        after = running.figures()
        assert after.resident_bytes < before.resident_bytes + (64 << 20)
        assert after.threads <= before.threads + 2
        assert after.descriptors <= before.descriptors + 2
        assert _warnings(running) == warned


def statuses(answer: bytes) -> list[int]:
    """Of every response in what a connection brought; [CLOSED] where there is none."""
    return [int(each) for each in re.findall(rb"^HTTP/1\.1 ([0-9]{3}) ", answer, re.MULTILINE)] or [CLOSED]


def each(cases: Mapping[int, Iterable[T]]) -> list[Any]:
    """Parameters of a test: what is sent, and the status that it gets."""
    return [pytest.param(case, status, id=repr(case)[:40]) for status, sent in cases.items() for case in sent]


@pytest.mark.parametrize(("path", "status"), each(PATHS))
def test_a_path_is_what_it_says_and_nothing_else(daemon: Target, path: bytes, status: int) -> None:
    answer = daemon.ask(get(path))
    assert statuses(answer) == [status]
    assert b"root:" not in answer
    assert b"x-injected" not in answer.lower()
    if status != http.HTTPStatus.OK:
        assert len(answer) < 400
        assert path[:200] not in answer.partition(b"\r\n\r\n")[2] or len(path) < 2


@pytest.mark.parametrize(("request_bytes", "status"), HEADS.values(), ids=HEADS)
def test_an_odd_head_is_answered_once(daemon: Target, request_bytes: bytes, status: int) -> None:
    answer = daemon.ask(request_bytes)
    assert statuses(answer) == [status]
    assert status < 400 or (b"connection: close" in answer.lower() and len(answer) < 400)


@pytest.mark.parametrize(("sent", "status"), each(SMUGGLING))
def test_a_body_of_doubtful_length_hides_no_request(daemon: Target, sent: tuple[bytes, bytes], status: int) -> None:
    answer = daemon.ask(b"POST /metrics HTTP/1.1\r\nHost: h\r\n%b\r\n\r\n%b%b" % (*sent, HIDDEN))
    assert statuses(answer) == [status]
    assert b"healthy" not in answer
    assert b"connection: close" in answer.lower()


def test_a_packed_body_is_never_unpacked(daemon: Target) -> None:
    bomb = gzip.compress(b"\0" * 500_000)
    headers = (b"Content-Encoding: gzip", b"Content-Length: %d" % len(bomb))
    assert len(bomb) < 1024
    assert statuses(daemon.ask(get(b"/-/healthy", *headers) + bomb)) == [200]


GUESS = "correct horse battery staple"
CLAIM = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    with target(tmp_path_factory.mktemp("guarded"), guarded=True) as running:
        yield running


def secrets(running: Target) -> list[str]:
    """What must be seen nowhere: the password, its hashes, what goes over the wire for it, the key."""
    hashes = re.findall(r"\$2b\$\S+", (running.folder / "web.yml").read_text())
    key = (running.folder / "server.key").read_text().splitlines()[1]
    return [PASSWORD, CLAIM, GUESS, base64.b64encode(GUESS.encode()).decode(), key, *hashes, "PRIVATE KEY"]


def seen_in(text: str, running: Target) -> list[str]:
    return [secret for secret in secrets(running) if secret in text]


def test_no_answer_to_a_broken_request_shows_what_was_sent(guarded: Target) -> None:
    answer = guarded.ask(f"GET /{GUESS} HTTP/1.1\r\nAuthorization: Basic {CLAIM}\r\n\r\n".encode())
    assert seen_in(answer.decode("latin-1"), guarded) == []


def test_neither_log_nor_process_list_shows_a_secret_even_while_debugging(guarded: Target) -> None:
    known = secrets(guarded)
    (guarded.folder / "web.yml").write_text(f"basic_auth_users: {{{USER}: '{GUESS}'}}")
    wait_for(lambda: "web configuration cannot be used" in guarded.log)
    process = Path(f"/proc/{guarded.pid}")
    looked_at = [
        guarded.log,
        *((process / name).read_text(errors="replace") for name in ("cmdline", "environ", "comm")),
    ]
    assert [secret for secret in known for text in looked_at if secret in text] == []
    with closing(guarded.client()) as client:
        assert scrape(client, guarded) == http.HTTPStatus.OK
