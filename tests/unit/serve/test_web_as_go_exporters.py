"""Rows of what Prometheus's own exporters are documented to do with a web configuration and an Accept header.

Each row says what they do and what this one does. Where they differ, docs/web-security.md has a line with the reason.
"""

import re
import ssl
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from tests.certificates import Authority, trusting_context
from tests.gathered import for_each
from tests.guarded_server import MTLS, REQUEST, Running, serving
from tests.logged import Log

from gpu_triage.errors import ConfigError
from gpu_triage.serve.config_file import MOST_USERS
from gpu_triage.serve.exposition.encoding import Format
from gpu_triage.serve.exposition.page import negotiate
from gpu_triage.serve.security import SecuritySource

HASH = "$2b$04$oU7arqRnLqxvvbHvQHnxOuwZN7QnJ6Y0uYc2VdKdvG5a3Nn0QZ0jK"
TLS = "tls_server_config: {cert_file: server.pem, key_file: server.key"
VERIFIED = f"{TLS}, client_auth_type: RequireAndVerifyClientCert"


class Row(NamedTuple):
    """A file that exporter-toolkit takes: the line of the documentation that says so, and words of the refusal here."""

    content: str
    differs: str
    refusal: str


FILES = {
    "client: asked": Row(
        f"{TLS}, client_auth_type: RequestClientCert}}", "RequestClientCert", "Python's ssl cannot ask"
    ),
    "client: any": Row(
        f"{TLS}, client_auth_type: RequireAnyClientCert}}", "RequireAnyClientCert", "Python's ssl cannot ask"
    ),
    "client: verified by nobody named": Row(f"{VERIFIED}}}", "no `client_ca_file`", "needs client_ca_file"),
    "names of clients that nobody verifies": Row(
        f"{TLS}, client_allowed_sans: [a]}}",
        "`client_allowed_sans` without",
        "client_allowed_sans needs RequireAndVerifyClientCert",
    ),
    "TLS 1.0": Row(f"{TLS}, min_version: TLS10}}", "TLS10", "TLS10 is not served any more"),
    "versions swapped": Row(
        f"{TLS}, min_version: TLS13, max_version: TLS12}}", "`min_version` above", "min_version is above max_version"
    ),
    "several curves": Row(
        f"{TLS}, curve_preferences: [X25519, CurveP256]}}", "`curve_preferences`", "Python's ssl can set one curve"
    ),
    "a hash that takes minutes": Row(
        f"basic_auth_users: {{a: {HASH.replace('$04$', '$31$')}}}", "cost above 16", "cost 31 is out of range"
    ),
    "a user name that no client can send": Row(
        f"basic_auth_users: {{'a:b': {HASH}}}", "colon", "a user name has no colon"
    ),
    "users beyond counting": Row(
        "basic_auth_users:\n" + "".join(f"  u{n}: {HASH}\n" for n in range(MOST_USERS + 1)), "1000 users", "1000"
    ),
    "a rate": Row("rate_limit: {interval: 1s, burst: 10}", "`rate_limit`", "rate_limit is not offered"),
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
def test_a_file_that_is_refused_here_alone_is_answered_with_what_would_be_right(folder: Path, row: Row) -> None:
    file = folder / "web.yml"
    file.write_text(row.content)
    with pytest.raises(ConfigError, match=re.escape(row.refusal)) as refused:
        SecuritySource(str(file))
    assert str(refused.value).startswith(f"{file}: ")
    assert "; " in str(refused.value), "what would be right"
    assert "$2b$" not in str(refused.value)


class Told(NamedTuple):
    """The alert that a client gets of a handshake, and what the log says."""

    alert: str
    cause: str
    differs: str = ""  # from what a Go exporter sends


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
        pass
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
    "no certificate": (trusting_context, MTLS, Told("certificate_required", "the client sent no certificate")),
    "no certificate, TLS 1.2": (
        lambda folder: _older(trusting_context(folder)),
        MTLS,
        Told("handshake_failure", "the client sent no certificate", "no certificate, with TLS 1.2"),
    ),
    "of another authority": (_stranger, MTLS, Told("unknown_ca", "unable to get local issuer certificate")),
    "a name that is not allowed": (
        _client,
        (*MTLS, "client_allowed_sans: [prometheus]"),
        Told("", "client_allowed_sans", "not in `client_allowed_sans`"),
    ),
    "an older version": (
        lambda folder: _older(trusting_context(folder)),
        ("min_version: TLS13",),
        Told("protocol_version", "min_version"),
    ),
    "no suite in common": (_of_another_suite, CHACHA, Told("handshake_failure", "cipher_suites")),
}


@pytest.mark.parametrize(("client", "lines", "told"), HANDSHAKES.values(), ids=HANDSHAKES)
def test_a_client_that_is_refused_at_the_handshake_is_told_why_and_the_log_names_the_cause_once(
    tmp_path: Path, client: Callable[[Path], ssl.SSLContext], lines: tuple[str, ...], told: Told
) -> None:
    authority = Authority(tmp_path)
    authority.issue("client", "DNS:grafana")
    log = Log()
    with serving(tmp_path, authority.server(*lines)) as running:
        context = client(tmp_path)
        assert {_alert(running, context) for _ in range(5)} == {told.alert}
    (line,) = log.lines("TLS connection refused")
    assert told.cause in line["cause"]
    assert line["client"] == "127.0.0.1"


CHALLENGE = "challenge"
"""Of a 401: it names a realm here, as test_web_passwords shows."""

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


ACCEPT = {
    TEXT: (
        *("", "*/*", "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "application/json", PROTOBUF),
        *("text/plain", "text/plain;version=0.0.4", "text/plain;version=1.0.0"),
        *(f"application/openmetrics-text;version={version}" for version in ("0.0.1", "2.0.0", "new", "1.0.0;q=0")),
        "application/openmetrics-text;version=1.0.0;q=0.3,text/plain;version=0.0.4;q=0.5",
        "application/openmetrics-text;version=1.0.0;q=much,text/plain",
    ),
    OM: (
        *("application/openmetrics-text", "application/openmetrics-text; version=1.0.0; charset=utf-8"),
        *(
            "application/openmetrics-text;version=1.0.0",
            "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8",
        ),
        "application/openmetrics-text;version=1.0.0,text/plain;version=0.0.4",
        "text/plain;version=0.0.4,application/openmetrics-text;version=1.0.0",
        *(PROMETHEUS_2, PROMETHEUS_3, f"{PROTOBUF};q=0.6,{PROMETHEUS_2}"),
    ),
}


@for_each(("accept", "form"), [(each, form) for form in ACCEPT for each in ACCEPT[form]])
def test_a_client_gets_the_format_that_it_prefers(accept: str, form: Format) -> None:
    assert negotiate(accept) is form


def test_every_difference_is_documented_and_everything_documented_is_one(differences: list[str]) -> None:
    rows = [row.differs for row in FILES.values()] + [told.differs for _, _, told in HANDSHAKES.values()]
    named = {CHALLENGE, *(differs for differs in rows if differs)}
    lines = {name: [line for line in differences if name in line.split(" | ")[0]] for name in named}
    assert {name: len(found) for name, found in lines.items() if len(found) != 1} == {}
    assert set(differences) - {line for found in lines.values() for line in found} == set()
    assert [line for line in differences if re.search(r"\|\s*\|", line)] == [], "each has a reason, or both answers"
