"""TLS from outside: what is agreed on, whose certificates are accepted, and handshakes that never end."""

import os
import socket
import ssl
import time
import tracemalloc
from contextlib import ExitStack, closing, nullcontext
from http.client import HTTPSConnection
from pathlib import Path

import pytest
from tests.certificates import Authority, trusting_context
from tests.guarded_server import MTLS, REQUEST, read_all, send_on, serving
from tests.logged import Log
from tests.web_sources import Host

from gpu_triage.serve.connection import Limits

REFUSED = "TLS connection refused"  # a line of the log
SCRAPE = b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n"


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_https_is_served_with_http_1_1_to_a_client_that_offers_http_2(tmp_path: Path, version: ssl.TLSVersion) -> None:
    with serving(tmp_path, Authority(tmp_path).server()) as running:
        context = trusting_context(tmp_path)
        context.minimum_version = context.maximum_version = version
        context.set_alpn_protocols(["h2", "http/1.1"])
        with running.shake(context) as client:
            assert client.selected_alpn_protocol() == "http/1.1"
            client.sendall(REQUEST)
            assert client.recv(65536).startswith(b"HTTP/1.1 200")


def test_versions_suites_and_curve_are_those_of_the_file(tmp_path: Path) -> None:
    lines = ("max_version: TLS12", "cipher_suites: [TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256]")
    with serving(tmp_path, Authority(tmp_path).server(*lines, "curve_preferences: [CurveP384]")) as running:
        with running.shake(trusting_context(tmp_path)) as client:
            assert client.cipher() == ("ECDHE-ECDSA-CHACHA20-POLY1305", "TLSv1.2", 256)
        other_curve = trusting_context(tmp_path)
        other_curve.set_ecdh_curve("prime256v1")
        with pytest.raises(ssl.SSLError):
            running.shake(other_curve)


def test_a_certificate_that_is_asked_for_and_not_required_is_verified_if_given(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    stranger = Authority(tmp_path, "elsewhere").issue("stranger")
    lines = ("client_auth_type: VerifyClientCertIfGiven", "client_ca_file: ca.pem")
    with serving(tmp_path, authority.server(*lines)) as running:
        assert running.get(context=trusting_context(tmp_path)).status == 200
        assert running.get(context=trusting_context(tmp_path, authority.issue("client"))).status == 200
        with pytest.raises((ssl.SSLError, ConnectionError)):
            running.get(context=trusting_context(tmp_path, stranger))


ALLOWED = ("DNS:prometheus", "IP:2001:db8::1", "URI:spiffe://gpu/prometheus", "email:a@b.example")


@pytest.mark.parametrize("name", [*ALLOWED, "DNS:prometheus.example", ""])
def test_only_certificates_with_an_allowed_name_are_answered(tmp_path: Path, name: str) -> None:
    authority = Authority(tmp_path)
    sans = f"client_allowed_sans: {[each.partition(':')[2] for each in ALLOWED]}"
    context = trusting_context(tmp_path, authority.issue("client", *filter(None, [name])))
    refused = pytest.raises((ssl.SSLError, ConnectionError))
    with serving(tmp_path, authority.server(*MTLS, sans)) as running, nullcontext() if name in ALLOWED else refused:
        assert running.get(context=context).status == 200


def test_half_done_handshakes_are_counted_and_give_way_and_a_scrape_gets_through(tmp_path: Path) -> None:
    with serving(tmp_path, Authority(tmp_path).server(), Limits(tls_connections=10)) as running:
        hello = client_hello()
        silent = [running.connect() for _ in range(60)]
        for number, client in enumerate(silent):
            if number % 2:
                client.sendall(hello[: len(hello) // 2])
        assert running.get(context=trusting_context(tmp_path)).status == 200
        assert [read_all(client) for client in silent[:50]] == [b""] * 50
        for client in silent:
            client.close()


def test_a_client_that_has_shaken_hands_is_cut_after_those_that_have_not(tmp_path: Path) -> None:
    with ExitStack() as opened:
        web = Authority(tmp_path).server()
        running = opened.enter_context(serving(tmp_path, web, Limits(tls_connections=2)))
        first, silent = (opened.enter_context(running.connect()) for _ in range(2))
        context = trusting_context(tmp_path)
        context.maximum_version = ssl.TLSVersion.TLSv1_2  # in which the server is the last to speak
        client = opened.enter_context(context.wrap_socket(first, server_hostname="127.0.0.1"))
        opened.enter_context(running.connect())
        assert ends(silent)
        client.sendall(REQUEST)
        assert client.recv(65536).startswith(b"HTTP/1.1 200")


def test_a_handshake_or_a_first_request_that_is_not_done_in_time_ends(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        serving(tmp_path, Authority(tmp_path).server(), Limits(request_seconds=0.2)) as running,
        running.connect() as silent,
        running.connect() as half,
        running.connect() as garbage,
        running.shake(trusting_context(tmp_path)) as dawdler,
    ):
        half.sendall(client_hello()[:50])
        garbage.sendall(b"\x00" + os.urandom(4096))
        dawdler.sendall(b"GET / HT")
        for client in (silent, half, garbage, dawdler):
            assert ends(client)
        assert running.get(context=trusting_context(tmp_path)).status == 200
    assert [record for record in caplog.records if record.levelname not in ("DEBUG", "INFO")] == []


def test_the_server_stops_in_the_middle_of_handshakes(tmp_path: Path) -> None:
    with serving(tmp_path, Authority(tmp_path).server(), Limits(request_seconds=600)) as running:
        half = running.connect()
        half.sendall(client_hello()[:50])
        silent = running.connect()
        assert running.get(context=trusting_context(tmp_path)).status == 200
    for client in (half, silent):
        assert ends(client)
        client.close()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_client_that_said_goodbye_still_gets_its_answer(tmp_path: Path, version: ssl.TLSVersion) -> None:
    with serving(tmp_path, Authority(tmp_path).server()) as running:
        context = trusting_context(tmp_path)
        context.minimum_version = context.maximum_version = version
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
        with running.connect() as client:
            while True:
                try:
                    tls.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    client.sendall(outgoing.read())
                    incoming.write(client.recv(65536))
            tls.write(REQUEST)
            with pytest.raises(ssl.SSLError):
                tls.unwrap()
            client.sendall(outgoing.read())
            while received := client.recv(65536):
                incoming.write(received)
        assert tls.read(65536).startswith(b"HTTP/1.1 200")


def test_the_end_of_the_last_answer_is_no_truncation(tmp_path: Path) -> None:
    with serving(tmp_path, Authority(tmp_path).server()) as running, running.connect() as plain:
        context = trusting_context(tmp_path)
        with context.wrap_socket(plain, server_hostname="127.0.0.1", suppress_ragged_eofs=False) as client:
            client.sendall(REQUEST.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
            assert client.makefile("rb").read().endswith(b"healthy\n")


def test_a_page_beyond_all_buffers_arrives_and_its_connection_lives_on(tmp_path: Path) -> None:
    page = b"x" * 50_000_000
    with serving(tmp_path, Authority(tmp_path).server(), host=Host(page)) as running:
        client = HTTPSConnection("127.0.0.1", running.port, timeout=20, context=trusting_context(tmp_path))
        with closing(client):
            for _ in range(2):
                client.request("GET", "/metrics")
                time.sleep(0.1)  # until nothing more fits into the sockets
                assert client.getresponse().read() == page


def test_a_page_that_clients_do_not_read_is_held_once(tmp_path: Path) -> None:
    host = Host(b"x" * 50_000_000)
    with ExitStack() as opened:
        running = opened.enter_context(serving(tmp_path, Authority(tmp_path).server(), host=host))
        tracemalloc.start()
        opened.callback(tracemalloc.stop)
        for _ in range(3):
            client = opened.enter_context(running.shake(trusting_context(tmp_path)))
            client.sendall(SCRAPE)
            assert client.recv(1) == b"H"
        held, most = tracemalloc.get_traced_memory()
        assert held < most < 10_000_000


def test_a_client_that_does_not_read_its_page_is_cut_in_time(tmp_path: Path) -> None:
    host, limits = Host(b"x" * 50_000_000), Limits(write_seconds=0.3, request_seconds=600, idle_seconds=600)
    with (
        serving(tmp_path, Authority(tmp_path).server(), limits, host=host) as running,
        running.shake(trusting_context(tmp_path)) as stalled,
    ):
        stalled.sendall(SCRAPE)
        assert stalled.recv(1) == b"H"
        with pytest.raises((ConnectionError, ssl.SSLEOFError)):
            send_on(stalled)


@pytest.mark.slow
def test_a_slow_handshake_leaves_the_first_request_its_full_time(tmp_path: Path) -> None:
    with (
        serving(tmp_path, Authority(tmp_path).server(), Limits(request_seconds=2)) as running,
        running.connect() as plain,
    ):
        time.sleep(1.2)
        with trusting_context(tmp_path).wrap_socket(plain, server_hostname="127.0.0.1") as client:
            time.sleep(1.2)
            client.sendall(REQUEST)
            assert client.recv(65536).startswith(b"HTTP/1.1 200")


def test_garbage_after_a_refused_request_is_dropped(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with serving(tmp_path, Authority(tmp_path).server()) as running, running.connect() as plain:
        with trusting_context(tmp_path).wrap_socket(plain, server_hostname="127.0.0.1") as client:
            client.sendall(b"nonsense\r\n\r\n")
            assert client.recv(65536).startswith(b"HTTP/1.1 400")
            with socket.socket(fileno=os.dup(client.fileno())) as beneath:
                beneath.settimeout(5)
                beneath.sendall(b"\x17\x03\x03\x00\x20" + b"x" * 32)
                while beneath.recv(65536):
                    pass  # the rest of the answer, and the goodbye; no reset
        assert running.get(context=trusting_context(tmp_path)).status == 200
    assert [record for record in caplog.records if record.levelname not in ("DEBUG", "INFO")] == []


def test_plain_http_on_the_tls_port_is_answered_in_plain_http(tmp_path: Path) -> None:
    log = Log()
    with serving(tmp_path, Authority(tmp_path).server()) as running:
        answer = running.get()
        with running.connect() as client:
            client.sendall(REQUEST)
            text = client.makefile("rb").read()
    assert answer.status == 400
    assert b"https://" in text
    (line,) = log.lines(REFUSED)
    assert "plain HTTP" in str(line["cause"])


def test_a_client_that_does_not_trust_the_server_is_logged(tmp_path: Path) -> None:
    log = Log()
    with serving(tmp_path, Authority(tmp_path).server()) as running:
        with pytest.raises(ssl.SSLCertVerificationError), running.connect() as client:
            ssl.create_default_context().wrap_socket(client, server_hostname="127.0.0.1")
        assert running.get(context=trusting_context(tmp_path)).status == 200
    (line,) = log.lines(REFUSED)
    assert "ca_file" in str(line["cause"])


def ends(client: socket.socket) -> bool:
    """Whether the server ends the connection without an answer of HTTP."""
    return b"HTTP" not in read_all(client)


def client_hello() -> bytes:
    """The first bytes of a handshake."""
    outgoing = ssl.MemoryBIO()
    client = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        client.do_handshake()
    return outgoing.read()
