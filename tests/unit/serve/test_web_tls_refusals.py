"""A refused TLS handshake: the client is told why by an alert, and the operator by one line of the log."""

from __future__ import annotations

import os
import socket
import ssl
import time
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from tests.certificates import Authority, trusting_context
from tests.guarded_server import MTLS, REQUEST, Running, serving
from tests.logged import Log

from gpu_triage.serve.connection import Limits

if TYPE_CHECKING:
    from collections.abc import Callable


@pytest.fixture
def log() -> Log:
    return Log()


def refusals(log: Log) -> list[dict[str, object]]:
    """Every line about a refused connection."""
    return log.lines("TLS connection refused")


def alert(running: Running, context: ssl.SSLContext) -> str:
    """The alert that a client sees which has sent its request by then."""
    try:
        with running.shake(context) as client:
            for _ in range(2):
                client.sendall(REQUEST)
                time.sleep(0.05)  # a server that is gone by now would reset the connection
            client.recv(65536)
    except ssl.SSLError as error:
        return str(error.reason).partition("_")[2]
    return "none"


def without_certificate(folder: Path) -> ssl.SSLContext:
    return trusting_context(folder)


def of_an_older_version(folder: Path) -> ssl.SSLContext:
    context = trusting_context(folder)
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    return context


def of_another_authority(folder: Path) -> ssl.SSLContext:
    return trusting_context(folder, Authority(folder, "elsewhere").issue("stranger"))


def of_another_suite(folder: Path) -> ssl.SSLContext:
    context = of_an_older_version(folder)
    context.set_ciphers("ECDHE-ECDSA-AES256-GCM-SHA384")
    return context


class Refused(NamedTuple):
    """A client, the server's TLS settings, the alert the client sees, and what the log says."""

    client: Callable[[Path], ssl.SSLContext]
    lines: tuple[str, ...]
    sent: str
    cause: str


CHACHA = ("cipher_suites: [TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256]",)
REFUSED = {
    "no certificate": Refused(
        without_certificate, MTLS, "ALERT_CERTIFICATE_REQUIRED", "the client sent no certificate"
    ),
    "no certificate, TLS 1.2": Refused(of_an_older_version, MTLS, "ALERT_HANDSHAKE_FAILURE", "the client sent no"),
    "wrong CA": Refused(of_another_authority, MTLS, "ALERT_UNKNOWN_CA", "unable to get local issuer certificate"),
    "version": Refused(of_an_older_version, ("min_version: TLS13",), "ALERT_PROTOCOL_VERSION", "min_version"),
    "suite": Refused(of_another_suite, CHACHA, "ALERT_HANDSHAKE_FAILURE", "cipher_suites"),
}


@pytest.mark.parametrize("case", REFUSED.values(), ids=REFUSED)
@pytest.mark.slow
def test_a_refused_client_sees_the_alert_and_the_log_names_the_cause_once(
    tmp_path: Path, case: Refused, log: Log
) -> None:
    with serving(tmp_path, Authority(tmp_path).server(*case.lines)) as running:
        context = case.client(tmp_path)
        assert {alert(running, context) for _ in range(10)} == {case.sent}
    (line,) = refusals(log)
    assert case.cause in str(line["cause"])
    assert line["client"] == "127.0.0.1"


def test_plain_http_on_the_tls_port_is_answered_in_plain_http(tmp_path: Path, log: Log) -> None:
    with serving(tmp_path, Authority(tmp_path).server()) as running:
        answer = running.get()
        with running.connect() as client:
            client.sendall(REQUEST)
            text = client.makefile("rb").read()
    assert answer.status == 400
    assert b"https://" in text
    (line,) = refusals(log)
    assert "plain HTTP" in str(line["cause"])


def test_a_certificate_without_an_allowed_name_is_logged(tmp_path: Path, log: Log) -> None:
    authority = Authority(tmp_path)
    context = trusting_context(tmp_path, authority.issue("client", "DNS:grafana"))
    web = authority.server(*MTLS, "client_allowed_sans: [prometheus]")
    with serving(tmp_path, web) as running, running.shake(context) as client:
        assert client.recv(65536) == b""
    (line,) = refusals(log)
    assert "client_allowed_sans" in str(line["cause"])


def test_a_client_that_does_not_trust_the_server_is_logged(tmp_path: Path, log: Log) -> None:
    with serving(tmp_path, Authority(tmp_path).server()) as running:
        with pytest.raises(ssl.SSLCertVerificationError), running.connect() as client:
            ssl.create_default_context().wrap_socket(client, server_hostname="127.0.0.1")
        assert running.get(context=trusting_context(tmp_path)).status == 200
    (line,) = refusals(log)
    assert "ca_file" in str(line["cause"])


def test_bytes_that_are_not_tls_do_not_reach_the_log(tmp_path: Path, log: Log) -> None:
    with serving(tmp_path, Authority(tmp_path).server()) as running, running.connect() as client:
        client.sendall(b"\x00" + os.urandom(4096))
        while client.recv(65536):
            pass
    assert refusals(log) == []


def test_a_refused_client_that_goes_on_sending_is_cut(tmp_path: Path) -> None:
    web = Authority(tmp_path).server()
    with serving(tmp_path, web, Limits(linger_seconds=0.1)) as running, running.connect() as client:
        client.sendall(REQUEST)
        assert client.recv(65536).startswith(b"HTTP/1.1 400")
        with pytest.raises(ConnectionError):
            send_on(client)


def send_on(client: socket.socket) -> None:
    """Drip bytes until the server has cut the connection."""
    while True:
        client.sendall(b"x")
        time.sleep(0.005)
