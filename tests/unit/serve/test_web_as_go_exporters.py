"""Rows of what Prometheus's own exporters are documented to do with a web configuration and an Accept header.

Each row says what they do and what this one does. Where they differ, docs/web-security.md has a line with the reason.
"""

from __future__ import annotations

import re
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.certificates import Authority, trusting_context
from tests.guarded_server import MTLS, PASSWORDS, REQUEST, Running, basic, serving

from gpu_triage.errors import ConfigError
from gpu_triage.serve.config_file import MOST_USERS
from gpu_triage.serve.exposition.encoding import Format
from gpu_triage.serve.exposition.page import negotiate
from gpu_triage.serve.security import SecuritySource

HASH = "$2b$04$oU7arqRnLqxvvbHvQHnxOuwZN7QnJ6Y0uYc2VdKdvG5a3Nn0QZ0jK"
TLS = "tls_server_config: {cert_file: server.pem, key_file: server.key"
VERIFIED = f"{TLS}, client_auth_type: RequireAndVerifyClientCert"


class Row(NamedTuple):
    """A file, whether exporter-toolkit takes it, and the line of the documentation where this exporter does not."""

    content: str
    taken_there: bool
    differs: str | None = None


FILES = {
    "nothing": Row("", taken_there=True),
    "no YAML": Row("tls_server_config: [", taken_there=False),
    "no mapping": Row("text", taken_there=False),
    "an unknown section": Row("tls_config: {}", taken_there=False),
    "an unknown key": Row(f"{TLS}, cert_fil: x}}", taken_there=False),
    "a key twice": Row(f"basic_auth_users: {{a: {HASH}, a: {HASH}}}", taken_there=False),
    "certificate and key": Row(f"{TLS}}}", taken_there=True),
    "no key": Row("tls_server_config: {cert_file: server.pem}", taken_there=False),
    "no certificate": Row("tls_server_config: {key_file: server.key}", taken_there=False),
    "a certificate that is not there": Row(
        "tls_server_config: {cert_file: no.pem, key_file: server.key}", taken_there=False
    ),
    "the key of another": Row("tls_server_config: {cert_file: server.pem, key_file: client.key}", taken_there=False),
    "a certificate twice": Row(f"{TLS}, cert: x}}", taken_there=False),
    "client: none": Row(f"{TLS}, client_auth_type: NoClientCert}}", taken_there=True),
    "client: asked": Row(
        f"{TLS}, client_auth_type: RequestClientCert}}", taken_there=True, differs="RequestClientCert"
    ),
    "client: any": Row(
        f"{TLS}, client_auth_type: RequireAnyClientCert}}", taken_there=True, differs="RequireAnyClientCert"
    ),
    "client: if given": Row(
        f"{TLS}, client_auth_type: VerifyClientCertIfGiven, client_ca_file: ca.pem}}", taken_there=True
    ),
    "client: verified": Row(f"{VERIFIED}, client_ca_file: ca.pem}}", taken_there=True),
    "client: verified by nobody named": Row(f"{VERIFIED}}}", taken_there=True, differs="no `client_ca_file`"),
    "client: unknown": Row(f"{TLS}, client_auth_type: Verify}}", taken_there=False),
    "an authority without a policy": Row(f"{TLS}, client_ca_file: ca.pem}}", taken_there=False),
    "an authority that is none": Row(f"{VERIFIED}, client_ca_file: server.key}}", taken_there=False),
    "names of clients": Row(f"{VERIFIED}, client_ca_file: ca.pem, client_allowed_sans: [a]}}", taken_there=True),
    "names of clients that nobody verifies": Row(
        f"{TLS}, client_allowed_sans: [a]}}", taken_there=True, differs="`client_allowed_sans` without"
    ),
    "TLS 1.0": Row(f"{TLS}, min_version: TLS10}}", taken_there=True, differs="TLS10"),
    "TLS 1.2 and 1.3": Row(f"{TLS}, min_version: TLS12, max_version: TLS13}}", taken_there=True),
    "no version": Row(f"{TLS}, min_version: TLS9}}", taken_there=False),
    "versions swapped": Row(
        f"{TLS}, min_version: TLS13, max_version: TLS12}}", taken_there=True, differs="`min_version` above"
    ),
    "a suite": Row(f"{TLS}, cipher_suites: [TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256]}}", taken_there=True),
    "a suite of TLS 1.3": Row(f"{TLS}, cipher_suites: [TLS_AES_128_GCM_SHA256]}}", taken_there=True),
    "no suite": Row(f"{TLS}, cipher_suites: [TLS_NULL]}}", taken_there=False),
    "an insecure suite": Row(f"{TLS}, cipher_suites: [TLS_RSA_WITH_RC4_128_SHA]}}", taken_there=False),
    "whose order counts": Row(f"{TLS}, prefer_server_cipher_suites: false}}", taken_there=True),
    "a curve": Row(f"{TLS}, curve_preferences: [CurveP256]}}", taken_there=True),
    "several curves": Row(
        f"{TLS}, curve_preferences: [X25519, CurveP256]}}", taken_there=True, differs="`curve_preferences`"
    ),
    "no curve": Row(f"{TLS}, curve_preferences: [CurveP1]}}", taken_there=False),
    "HTTP/2": Row("http_server_config: {http2: true}", taken_there=True),
    "headers": Row("http_server_config: {headers: {X-Frame-Options: deny, X-XSS-Protection: '0'}}", taken_there=True),
    "another header": Row("http_server_config: {headers: {Server: x}}", taken_there=False),
    "a value that a header lacks": Row("http_server_config: {headers: {X-Frame-Options: allow}}", taken_there=False),
    "another value that a header lacks": Row(
        "http_server_config: {headers: {X-Content-Type-Options: sniff}}", taken_there=False
    ),
    "a user": Row(f"basic_auth_users: {{a: {HASH}}}", taken_there=True),
    "a password": Row("basic_auth_users: {a: hunter2}", taken_there=False),
    "a hash that takes minutes": Row(
        f"basic_auth_users: {{a: {HASH.replace('$04$', '$31$')}}}", taken_there=True, differs="cost above 16"
    ),
    "a user name that no client can send": Row(
        f"basic_auth_users: {{'a:b': {HASH}}}", taken_there=True, differs="colon"
    ),
    "users beyond counting": Row(
        "basic_auth_users:\n" + "".join(f"  u{n}: {HASH}\n" for n in range(MOST_USERS + 1)),
        taken_there=True,
        differs="1000 users",
    ),
    "no rate": Row("rate_limit: {interval: 0, burst: 0}", taken_there=True),
    "a rate": Row("rate_limit: {interval: 1s, burst: 10}", taken_there=True, differs="`rate_limit`"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ca.pem, and certificate and key of a server and of a client."""
    path = tmp_path_factory.mktemp("toolkit")
    authority = Authority(path)
    authority.issue("server", "IP:127.0.0.1")
    authority.issue("client", "DNS:grafana")
    return path


@pytest.fixture(scope="module")
def differences(repository: Path) -> list[str]:
    """The rows of the documentation's tables of differences."""
    page = (repository / "docs" / "web-security.md").read_text(encoding="utf-8")
    (section,) = re.findall(r"^## Differences from[^\n]*\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    return [line for line in section.splitlines() if re.match(r"\| (?!Case |Setting )", line)]


@pytest.mark.parametrize("row", FILES.values(), ids=FILES)
def test_a_file_is_taken_or_refused_as_by_exporter_toolkit(folder: Path, row: Row) -> None:
    file = folder / "web.yml"
    file.write_text(row.content)
    if row.taken_there and row.differs is None:
        SecuritySource(str(file))
        return
    with pytest.raises(ConfigError, match="; "):  # what would be right
        SecuritySource(str(file))


class Told(NamedTuple):
    """What a client is told: of an HTTP answer its status and challenge, of a handshake its alert."""

    there: str
    here: str
    differs: str | None = None


OLDER = ssl.TLSVersion.TLSv1_2


def _alert(running: Running, context: ssl.SSLContext) -> str:
    """The TLS alert that a client sees which has sent its request by then; "" if the connection just ends."""
    try:
        with running.shake(context) as client:
            for _ in range(2):
                client.sendall(REQUEST)
                time.sleep(0.05)  # a server that is gone by now would reset the connection
            client.recv(65536)
    except ssl.SSLError as error:
        return str(error.reason).partition("ALERT_")[2].lower()
    except ConnectionError:
        return ""
    return ""


def _older(context: ssl.SSLContext) -> ssl.SSLContext:
    context.maximum_version = OLDER
    return context


def _stranger(folder: Path) -> ssl.SSLContext:
    return trusting_context(folder, Authority(folder, "elsewhere").issue("stranger"))


def _of_another_suite(folder: Path) -> ssl.SSLContext:
    context = _older(trusting_context(folder))
    context.set_ciphers("ECDHE-ECDSA-AES256-GCM-SHA384")
    return context


def _client(folder: Path) -> ssl.SSLContext:
    return trusting_context(folder, (folder / "client.pem", folder / "client.key"))


CHACHA = ("cipher_suites: [TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256]",)
HANDSHAKES: dict[str, tuple[Callable[[Path], ssl.SSLContext], tuple[str, ...], Told]] = {
    "no certificate": (trusting_context, MTLS, Told("certificate_required", "certificate_required")),
    "no certificate, TLS 1.2": (
        lambda folder: _older(trusting_context(folder)),
        MTLS,
        Told("bad_certificate", "handshake_failure", "no certificate, with TLS 1.2"),
    ),
    "of another authority": (_stranger, MTLS, Told("unknown_ca", "unknown_ca")),
    "a name that is not allowed": (
        _client,
        (*MTLS, "client_allowed_sans: [prometheus]"),
        Told("bad_certificate", "", "not in `client_allowed_sans`"),
    ),
    "an older version": (
        lambda folder: _older(trusting_context(folder)),
        ("min_version: TLS13",),
        Told("protocol_version", "protocol_version"),
    ),
    "no suite in common": (_of_another_suite, CHACHA, Told("handshake_failure", "handshake_failure")),
}


@pytest.mark.parametrize(("client", "lines", "told"), HANDSHAKES.values(), ids=HANDSHAKES)
def test_a_client_that_is_refused_at_the_handshake_is_told_why(
    tmp_path: Path, client: Callable[[Path], ssl.SSLContext], lines: tuple[str, ...], told: Told
) -> None:
    authority = Authority(tmp_path)
    authority.issue("client", "DNS:grafana")
    assert (told.there == told.here) == (told.differs is None)
    with serving(tmp_path, authority.server(*lines)) as running:
        assert _alert(running, client(tmp_path)) == told.here


ANSWERS = {
    "nothing asked": ("", None, Told("200", "200")),
    "the right password": (PASSWORDS, basic("prometheus", "scrape"), Told("200", "200")),
    "no password": (PASSWORDS, None, Told("401 Basic", "401 Basic realm", "challenge")),
    "a wrong password": (PASSWORDS, basic("prometheus", "guess"), Told("401 Basic", "401 Basic realm", "challenge")),
    "an unknown user": (PASSWORDS, basic("nobody", "scrape"), Told("401 Basic", "401 Basic realm", "challenge")),
    "another scheme": (PASSWORDS, "Bearer scrape", Told("401 Basic", "401 Basic realm", "challenge")),
}


@pytest.mark.parametrize(("content", "authorization", "told"), ANSWERS.values(), ids=ANSWERS)
@pytest.mark.parametrize("path", ["/metrics", "/-/healthy"])
def test_a_client_is_asked_for_its_password(
    tmp_path: Path, path: str, content: str, authorization: str | None, told: Told
) -> None:
    headers = "http_server_config: {headers: {X-Frame-Options: deny}}\n"
    with serving(tmp_path, headers + content) as running:
        answer = running.get(path, None, **({"Authorization": authorization} if authorization else {}))
        challenge = answer.headers["WWW-Authenticate"]
        here = f"{answer.status}{f' {challenge.partition(chr(61))[0]}' if challenge else ''}"
        assert here == told.here
        assert (told.there == told.here) == (told.differs is None)
        assert answer.headers["X-Frame-Options"] == "deny", "the operator's headers stand on refusals too"


def test_plain_http_on_the_tls_port_is_a_bad_request(tmp_path: Path) -> None:
    with serving(tmp_path, Authority(tmp_path).server()) as running, running.connect() as client:
        client.sendall(REQUEST)
        answer = client.makefile("rb").read()
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b"https://" in answer


OM, TEXT = Format.OPENMETRICS, Format.TEXT
PROTOBUF = "application/vnd.google.protobuf;proto=io.prometheus.client.MetricFamily;encoding=delimited"
PROMETHEUS_2 = (
    "application/openmetrics-text;version=1.0.0;q=0.5,application/openmetrics-text;version=0.0.1;q=0.4,"
    "text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)
PROMETHEUS_3 = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,application/openmetrics-text;version=0.0.1;"
    "q=0.5,text/plain;version=1.0.0;escaping=allow-utf-8;q=0.4,text/plain;version=0.0.4;q=0.3,*/*;q=0.2"
)


class Wanted(NamedTuple):
    """An Accept header, what a Go exporter that offers OpenMetrics answers, and what this one does."""

    accept: str
    there: str
    here: Format
    differs: str | None = None


ACCEPT = {
    "none": Wanted("", "text", TEXT),
    "anything": Wanted("*/*", "text", TEXT),
    "a browser": Wanted("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "text", TEXT),
    "text": Wanted("text/plain", "text", TEXT),
    "text of its version": Wanted("text/plain;version=0.0.4", "text", TEXT),
    "text of a later version": Wanted("text/plain;version=1.0.0", "text 1.0.0", TEXT, "`text/plain;version=1.0.0`"),
    "OpenMetrics": Wanted("application/openmetrics-text;version=1.0.0", "OpenMetrics", OM),
    "OpenMetrics with blanks": Wanted("application/openmetrics-text; version=1.0.0; charset=utf-8", "OpenMetrics", OM),
    "OpenMetrics, names as they are": Wanted(
        "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8", "OpenMetrics", OM
    ),
    "OpenMetrics of no version": Wanted("application/openmetrics-text", "OpenMetrics 0.0.1", OM, "without a version"),
    "OpenMetrics of its draft": Wanted(
        "application/openmetrics-text;version=0.0.1", "OpenMetrics 0.0.1", TEXT, "`version=0.0.1`"
    ),
    "OpenMetrics of a later version": Wanted("application/openmetrics-text;version=2.0.0", "text", TEXT),
    "OpenMetrics of nonsense": Wanted("application/openmetrics-text;version=new", "text", TEXT),
    "Prometheus 2": Wanted(PROMETHEUS_2, "OpenMetrics", OM),
    "Prometheus 3": Wanted(PROMETHEUS_3, "OpenMetrics", OM),
    "Prometheus with native histograms": Wanted(f"{PROTOBUF};q=0.6,{PROMETHEUS_2}", "protobuf", OM, "protobuf"),
    "protobuf alone": Wanted(PROTOBUF, "protobuf", TEXT, "protobuf"),
    "text rather than OpenMetrics": Wanted(
        "application/openmetrics-text;version=1.0.0;q=0.3,text/plain;version=0.0.4;q=0.5", "text", TEXT
    ),
    "text as much as OpenMetrics, first": Wanted(
        "text/plain;version=0.0.4,application/openmetrics-text;version=1.0.0", "text", OM, "equal weight"
    ),
    "OpenMetrics as much as text, first": Wanted(
        "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4", "OpenMetrics", OM
    ),
    "no OpenMetrics": Wanted("application/openmetrics-text;version=1.0.0;q=0", "OpenMetrics", TEXT, "`q=0`"),
    "a weight that is none": Wanted("application/openmetrics-text;version=1.0.0;q=much,text/plain", "text", TEXT),
    "neither": Wanted("application/json", "text", TEXT),
}


@pytest.mark.parametrize("wanted", ACCEPT.values(), ids=ACCEPT)
def test_a_client_gets_the_format_that_it_prefers(wanted: Wanted) -> None:
    assert negotiate(wanted.accept) is wanted.here
    same = wanted.there == {OM: "OpenMetrics", TEXT: "text"}[wanted.here]
    assert same == (wanted.differs is None)


def test_every_difference_is_documented_and_everything_documented_is_one(differences: list[str]) -> None:
    rows = [row.differs for row in FILES.values()]
    rows += [told.differs for _, _, told in HANDSHAKES.values()]
    rows += [told.differs for _, _, told in ANSWERS.values()]
    named = {differs for differs in rows if differs}
    lines = {name: [line for line in differences if name in line.split(" | ")[0]] for name in named}
    assert {name: len(found) for name, found in lines.items() if len(found) != 1} == {}
    assert set(differences) - {line for found in lines.values() for line in found} == set()
    assert [line for line in differences if re.search(r"\|\s*\|", line)] == [], "each has a reason, or both answers"
