"""Requests that no scraper sends: each gets the right status or none, and nothing behind it is taken for a request."""

import gzip
import http.client
import re
import socket
from collections.abc import Iterator

import pytest
from tests.hostile.target import Target, probe, target

CLOSED = 0  # the connection ends without a word

HOST = b"Host: h\r\nConnection: close\r\n"
HIDDEN = b"GET /-/healthy HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n"  # what a request must not smuggle past


def get(path: bytes, *headers: bytes, method: bytes = b"GET") -> bytes:
    lines = b"".join(header + b"\r\n" for header in headers)
    return b"%b %b HTTP/1.1\r\n%b%b\r\n" % (method, path, HOST, lines)


PATHS = {
    "as it is": (b"/metrics", 200),
    "a letter encoded": (b"/%6detrics", 200),
    "two slashes": (b"//metrics", 404),
    "a slash behind": (b"/metrics/", 404),
    "dots": (b"/x/../metrics", 404),
    "dots encoded": (b"/%2e%2e/metrics", 404),
    "out of the root": (b"/../../../../etc/passwd", 404),
    "out of the root, encoded": (b"/%2e%2e%2f%2e%2e%2fetc%2fpasswd", 404),
    "a slash encoded": (b"%2fmetrics", 400),
    "a backslash": (b"/\\metrics", 404),
    "NUL encoded": (b"/metrics%00", 404),
    "NUL": (b"/metrics\x00", 400),
    "a line end encoded": (b"/metrics%0d%0aX-Injected:%20yes", 404),
    "not UTF-8, encoded": (b"/%ff%fe", 404),
    "not ASCII": ("/ü".encode(), 400),
    "half an escape": (b"/%", 404),
    "twice encoded": (b"/%256detrics", 404),
    "other case": (b"/METRICS", 404),
    "a fragment": (b"/metrics#x", 404),
    "parameters of a path": (b"/metrics;x=y", 404),
    "absolute": (b"http://other.example/metrics", 400),
    "authority": (b"other.example:443", 400),
    "asterisk": (b"*", 400),
    "empty": (b"", 400),
    "two": (b"/metrics /metrics", 400),
    "a query of nothing": (b"/metrics?", 200),
    "a query of escapes": (b"/metrics?" + b"%" * 2000, 200),
    "many parameters": (b"/metrics?" + b"a&" * 4000, 400),
    "a long name": (b"/metrics?name[]=" + b"x" * 1000, 400),
    "a longer URL": (b"/" + b"x" * 100_000, 431),
}
METHODS = {
    "POST": 405,
    "PUT": 405,
    "DELETE": 405,
    "TRACE": 405,
    "OPTIONS": 405,
    "PATCH": 405,
    "PROPFIND": 405,
    "get": 405,
    "X" * 3000: 405,
    "G@T": 400,
    "GE\x00T": 400,
    "": 400,
}
HEADS = {
    "HTTP/2 without asking": (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505),
    "HTTP/1.2": (b"GET /metrics HTTP/1.2\r\n" + HOST + b"\r\n", 200),
    "HTTP/3.0": (b"GET /metrics HTTP/3.0\r\n" + HOST + b"\r\n", 505),
    "HTTP/1.0": (b"GET /metrics HTTP/1.0\r\n\r\n", 200),
    "a request for a tunnel": (b"CONNECT h:1 HTTP/1.1\r\n" + HOST + b"\r\n", 400),
    "no host": (b"GET /metrics HTTP/1.1\r\n\r\n", 400),
    "two hosts": (b"GET /metrics HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
    "an upgrade": (get(b"/metrics", b"Upgrade: websocket", b"Connection: upgrade"), 200),
    "an upgrade to HTTP/2": (get(b"/metrics", b"Upgrade: h2c", b"HTTP2-Settings: AAMAAABkAAQAAP__"), 200),
    "continue": (get(b"/metrics", b"Expect: 100-continue"), 200),
    "NUL in a header": (get(b"/metrics", b"A: b\x00c"), 400),
    "a name with a blank": (get(b"/metrics", b"A b: c"), 400),
    "a header without a name": (get(b"/metrics", b": c"), 400),
    "a header without a colon": (get(b"/metrics", b"abc"), 400),
    "thousand headers": (get(b"/metrics", *(b"A%d: b" % n for n in range(1000))), 200),
    "two thousand headers": (get(b"/metrics", *(b"Abcdefgh%d: b" % n for n in range(2000))), 431),
    "a long header": (get(b"/metrics", b"A: " + b"x" * 17_000), 431),
    "a range": (get(b"/metrics", b"Range: bytes=0-0"), 200),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\x00" * 64 + b"\r\n\r\n", 400),
}
SMUGGLING = {
    "length and chunks": (b"Content-Length: 4\r\nTransfer-Encoding: chunked", b"0\r\n\r\n", 411),
    "chunks and length": (b"Transfer-Encoding: chunked\r\nContent-Length: 4", b"0\r\n\r\n", 411),
    "chunks": (b"Transfer-Encoding: chunked", b"0\r\n\r\n", 411),
    "chunks twice": (b"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity", b"0\r\n\r\n", 501),
    "chunks in capitals": (b"Transfer-Encoding: CHUNKED", b"0\r\n\r\n", 411),
    "chunks behind another": (b"Transfer-Encoding: gzip, chunked", b"0\r\n\r\n", 501),
    "chunks behind a tab": (b"Transfer-Encoding:\tchunked", b"0\r\n\r\n", 411),
    "chunks behind a blank": (b"Transfer-Encoding : chunked", b"0\r\n\r\n", 400),
    "chunks behind a vertical tab": (b"Transfer-Encoding: \x0bchunked", b"0\r\n\r\n", 400),
    "two lengths": (b"Content-Length: 0\r\nContent-Length: 3", b"abc", 400),
    "two lengths in one": (b"Content-Length: 0, 3", b"abc", 400),
    "a length with a sign": (b"Content-Length: +3", b"abc", 400),
    "a negative length": (b"Content-Length: -3", b"abc", 400),
    "a length in hexadecimal": (b"Content-Length: 0x3", b"abc", 400),
    "a length in other digits": ("Content-Length: ٣".encode(), b"abc", 400),
    "a length of thousands of digits": (b"Content-Length: " + b"9" * 5000, b"abc", 400),
    "a great length": (b"Content-Length: 99999999999", b"abc", 413),
    "an empty length": (b"Content-Length: ", b"", 400),
}
ENCODINGS = {
    "none": (b"", False),
    "gzip": (b"gzip", True),
    "in capitals": (b"GZIP", True),
    "refused": (b"gzip;q=0", False),
    "refused, all else": (b"gzip;q=0, *", False),
    "no number": (b"gzip;q=nan", False),
    "beyond all": (b"gzip;q=1e999", False),
    "negative": (b"gzip;q=-1", False),
    "others": (b"br, zstd, deflate, compress", False),
    "again and again": (b", ".join([b"gzip"] * 1000), True),
    "nothing but commas": (b"," * 4000, False),
    "nothing but semicolons": (b"gzip" + b";" * 4000, True),
    "bytes": (b"\xff\xfe", False),
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
        assert _warnings(running) == warned


def statuses(answer: bytes) -> list[int]:
    """Of every response in what a connection brought; [CLOSED] where there is none."""
    return [int(each) for each in re.findall(rb"^HTTP/1\.1 ([0-9]{3}) ", answer, re.MULTILINE)] or [CLOSED]


@pytest.mark.parametrize(("path", "status"), PATHS.values(), ids=PATHS)
def test_a_path_is_what_it_says_and_nothing_else(daemon: Target, path: bytes, status: int) -> None:
    answer = daemon.ask(get(path))
    assert statuses(answer) == [status]
    assert b"root:" not in answer
    assert b"x-injected" not in answer.lower()
    if status != http.HTTPStatus.OK:
        assert len(answer) < 400
        assert path[:200] not in answer.partition(b"\r\n\r\n")[2] or len(path) < 2


@pytest.mark.parametrize(("method", "status"), METHODS.items(), ids=[name[:8] for name in METHODS])
def test_a_page_is_only_read(daemon: Target, method: str, status: int) -> None:
    assert statuses(daemon.ask(get(b"/metrics", method=method.encode()))) == [status]


@pytest.mark.parametrize(("request_bytes", "status"), HEADS.values(), ids=HEADS)
def test_an_odd_head_is_answered_once(daemon: Target, request_bytes: bytes, status: int) -> None:
    assert statuses(daemon.ask(request_bytes)) == [status]


@pytest.mark.parametrize(("headers", "body", "status"), SMUGGLING.values(), ids=SMUGGLING)
def test_a_body_of_doubtful_length_hides_no_request(daemon: Target, headers: bytes, body: bytes, status: int) -> None:
    answer = daemon.ask(b"POST /metrics HTTP/1.1\r\nHost: h\r\n%b\r\n\r\n%b%b" % (headers, body, HIDDEN))
    assert statuses(answer) == [status]
    assert b"healthy" not in answer
    assert b"connection: close" in answer.lower()


@pytest.mark.parametrize(("accept", "packed"), ENCODINGS.values(), ids=ENCODINGS)
def test_an_odd_accept_encoding_gets_the_page_in_one_that_is_right(daemon: Target, accept: bytes, packed: bool) -> None:  # noqa: FBT001
    answer = daemon.ask(get(b"/metrics", b"Accept-Encoding: " + accept))
    head, _, body = answer.partition(b"\r\n\r\n")
    assert statuses(head) == [200]
    assert (b"content-encoding: gzip" in head.lower()) == packed
    assert b"gpu_up{" in (gzip.decompress(body) if packed else body)


def test_a_packed_body_is_never_unpacked(daemon: Target) -> None:
    bomb = gzip.compress(b"\0" * 500_000)
    headers = (b"Content-Encoding: gzip", b"Content-Length: %d" % len(bomb))
    assert len(bomb) < 1024
    assert statuses(daemon.ask(get(b"/-/healthy", *headers) + bomb)) == [200]


def test_requests_sent_at_once_are_answered_each_in_its_turn(daemon: Target) -> None:
    paths = [b"/metrics", b"/nowhere", b"/-/healthy", b"/metrics?name[]=gpu_up"] * 5
    requests = b"".join(get(path).replace(b"Connection: close\r\n", b"") for path in paths)
    assert statuses(daemon.ask(requests + get(b"/-/ready"))) == [200, 404, 200, 200] * 5 + [200]


def test_half_open_connections_are_answered_and_forgotten(daemon: Target) -> None:
    before = daemon.figures().descriptors
    for _ in range(50):
        with daemon.connect() as client:
            client.sendall(get(b"/-/healthy"))
            client.shutdown(socket.SHUT_WR)
            assert client.makefile("rb").read().endswith(b"healthy\n")
    assert probe(daemon) == http.HTTPStatus.OK
    assert daemon.figures().descriptors <= before + 2
