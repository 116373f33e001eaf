"""The file of --web.config.file: what it may ask for, and how each mistake is answered.

Certificates, authorities and users that change while the server works. Rows of what Prometheus's own exporters are
documented to do with it and with an Accept header: where this one differs, docs/web-security.md has a line.
"""

import os
import re
import ssl
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import NamedTuple

import pytest
import yaml
from tests.certificates import Authority, trusting_context
from tests.e2e.processes import wait_for
from tests.gathered import for_each
from tests.guarded_server import MTLS, PASSWORDS, REQUEST, Running, basic, replace, run, served, serving
from tests.logged import Log

from gpu_triage.documents import Place
from gpu_triage.errors import ConfigError
from gpu_triage.options.config import Config
from gpu_triage.read.exporter.exporter_health import WebConfigHealth
from gpu_triage.serve.config_file import MOST_USERS, WebConfig, read_web_config
from gpu_triage.serve.exposition.encoding import Format
from gpu_triage.serve.exposition.page import negotiate
from gpu_triage.serve.passwords import hashed
from gpu_triage.serve.security import SecuritySource
from gpu_triage.serve.server import WebServer
from gpu_triage.serve.tls import server_context

HASH = "$2b$04$oU7arqRnLqxvvbHvQHnxOuwZN7QnJ6Y0uYc2VdKdvG5a3Nn0QZ0jK"

CONFIGS = yaml.safe_load(Path(__file__).with_name("web_configs.yml").read_bytes())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ca.pem, an empty.pem, and certificate and key of a server, of a client and of another."""
    path = tmp_path_factory.mktemp("tls")
    authority = Authority(path)
    authority.issue("server", "IP:127.0.0.1")
    authority.issue("client", "DNS:grafana")
    authority.issue("other")
    (path / "empty.pem").touch()
    return path


def context_of(folder: Path, *lines: str) -> ssl.SSLContext:
    """The context of a TLS section that has a certificate and these lines."""
    section = ("cert_file: server.pem", "key_file: server.key", *lines)
    file = folder / "web.yml"
    file.write_text("tls_server_config:\n" + "".join(f"  {line}\n" for line in section))
    tls = read_web_config(str(file)).tls
    assert tls is not None
    return server_context(tls, Place(str(file)).at("tls_server_config"))


def refusal(folder: Path, content: str) -> str:
    """What is said of a file: on one line, with its place and what would be right, and no secret."""
    file = folder / "web.yml"
    file.write_text(content)
    with pytest.raises(ConfigError) as caught:
        SecuritySource(str(file))
    message = str(caught.value)
    assert message.startswith((f"{file}: ", f"{folder}/"))
    assert "; " in message
    assert not any(secret in message for secret in ("\n", "hunter2", "$2b$"))
    return message


@pytest.mark.parametrize("content", ["", "{}", "tls_server_config:\nbasic_auth_users: {}\nhttp_server_config: ~\n"])
def test_a_file_that_asks_for_nothing_guards_nothing(tmp_path: Path, content: str) -> None:
    (tmp_path / "web.yml").write_text(content)
    assert read_web_config(str(tmp_path / "web.yml")) == WebConfig()


def test_the_defaults_are_tls_1_2_and_1_3_and_http_1_1(folder: Path) -> None:
    context = context_of(folder)
    assert (context.minimum_version, context.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3)
    assert context.options & ssl.OP_NO_RENEGOTIATION
    assert context.options & ssl.OP_CIPHER_SERVER_PREFERENCE


def test_cipher_suites_are_those_listed_in_their_order(folder: Path) -> None:
    names = "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384, TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256, TLS_AES_128_GCM_SHA256"
    context = context_of(folder, f"cipher_suites: [{names}]", "prefer_server_cipher_suites: false")
    chosen = [cipher["name"] for cipher in context.get_ciphers() if cipher["protocol"] == "TLSv1.2"]
    assert chosen == ["ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-RSA-AES128-GCM-SHA256"]
    assert not context.options & ssl.OP_CIPHER_SERVER_PREFERENCE


def test_suites_of_tls_1_3_alone_leave_tls_1_3_alone(folder: Path) -> None:
    context = context_of(folder, "cipher_suites: [TLS_AES_256_GCM_SHA384]")
    assert context.minimum_version is ssl.TLSVersion.TLSv1_3


def sets_x25519() -> bool:
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).set_ecdh_curve("X25519")
    except (ssl.SSLError, ValueError):
        return False
    return True


@pytest.mark.parametrize("curve", ["CurveP256", "CurveP384", "CurveP521", "X25519"])
def test_one_curve_can_be_chosen_or_is_refused_with_the_cause_where_a_python_cannot(folder: Path, curve: str) -> None:
    # What a handshake then agrees on is in test_web_tls.
    refused = pytest.raises(ConfigError, match="Python's ssl cannot set X25519")
    with nullcontext() if curve != "X25519" or sets_x25519() else refused:
        context_of(folder, f"curve_preferences: [{curve}]")


def test_certificate_and_key_may_stand_in_the_file(folder: Path) -> None:
    inline = {"cert": "server.pem", "key": "server.key", "client_ca": "ca.pem"}
    lines = ["tls_server_config:", "  client_auth_type: RequireAndVerifyClientCert"]
    for key, name in inline.items():
        lines += [f"  {key}: |", *(f"    {line}" for line in (folder / name).read_text().splitlines())]
    (folder / "inline.yml").write_text("\n".join(lines))
    tls = read_web_config(str(folder / "inline.yml")).tls
    assert tls is not None
    assert server_context(tls, Place("inline.yml")).verify_mode is ssl.CERT_REQUIRED
    assert "PRIVATE" not in repr(tls)


def test_headers_of_the_allowed_list_are_taken_and_empty_ones_left_out(tmp_path: Path) -> None:
    headers = "{Strict-Transport-Security: max-age=31536000, X-Frame-Options: deny, X-XSS-Protection: ''}"
    for http2 in ("true", "false"):
        (tmp_path / "web.yml").write_text(f"http_server_config: {{http2: {http2}, headers: {headers}}}")
        assert read_web_config(str(tmp_path / "web.yml")).headers == (
            (b"strict-transport-security", b"max-age=31536000"),
            (b"x-frame-options", b"deny"),
        )


TOOLKITS_DEFAULTS = (Path(__file__).parent / "toolkit-defaults.yml").read_text(encoding="utf-8")
"""Every key of exporter-toolkit's documentation, at its default there."""


@pytest.mark.parametrize("interval", ["0", "0s", "0m0s", "0.0s", ""])
def test_a_file_with_every_key_of_exporter_toolkit_at_its_default_is_accepted(folder: Path, interval: str) -> None:
    (folder / "web.yml").write_text(TOOLKITS_DEFAULTS.replace("HASH", HASH).replace("INTERVAL", interval))
    config = SecuritySource(str(folder / "web.yml")).current.config
    assert config.tls is not None
    assert (config.tls.client_ca, config.tls.client_allowed_sans) == (None, None)
    assert (config.headers, list(config.users)) == ((), [b"alice", b"bob"])


def test_users_have_hashes_that_no_representation_shows(tmp_path: Path) -> None:
    (tmp_path / "web.yml").write_text(f"basic_auth_users:\n  prometheus: {HASH}\n  Zoë: {HASH}\n")
    config = read_web_config(str(tmp_path / "web.yml"))
    assert dict(config.users) == {b"prometheus": HASH.encode(), "Zoë".encode(): HASH.encode()}
    assert "$2b" not in repr(config)


@pytest.mark.parametrize(("content", "words"), CONFIGS["mistakes"].values(), ids=CONFIGS["mistakes"])
def test_a_mistake_is_answered_with_its_place_and_what_would_be_right(folder: Path, content: str, words: str) -> None:
    assert words in refusal(folder, content)


def test_an_encrypted_key_is_refused_and_no_passphrase_asked_for(folder: Path) -> None:
    command = ["openssl", "pkcs8", "-topk8", "-passout", "pass:secret"]
    subprocess.run([*command, "-in", folder / "server.key", "-out", folder / "secret.key"], check=True)
    message = refusal(folder, "tls_server_config: {cert_file: server.pem, key_file: secret.key}")
    assert "the key is encrypted; write one that is not" in message


CHANGED = f"basic_auth_users:\n  prometheus: {hashed(b'change', 4)}\n"


def common_name(client: ssl.SSLSocket) -> str:
    certificate = client.getpeercert()
    assert certificate is not None
    return str(dict(field for name in certificate["subject"] for field in name)["commonName"])  # type: ignore[misc]  # as ssl shapes it


def test_a_new_certificate_is_served_and_old_connections_end(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    trusting = trusting_context(tmp_path)
    with serving(tmp_path, authority.server(), reload_seconds=0.02) as running:
        with running.shake(trusting) as old:
            old.sendall(REQUEST)
            received = b""
            while not received.endswith(b"healthy\n"):
                received += old.recv(65536)
            assert common_name(old) == "server"
            certificate, key = authority.issue("renewed", "IP:127.0.0.1")
            replace(tmp_path / "server.key", key.read_bytes())
            replace(tmp_path / "server.pem", certificate.read_bytes())
            assert old.recv(65536) == b""  # closed once the new one is loaded
        with running.shake(trusting) as new:
            assert common_name(new) == "renewed"
        assert running.health[-1].success


def test_an_authority_that_is_replaced_takes_its_clients_with_it(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    other = Authority(tmp_path, "elsewhere")
    before, after = (
        trusting_context(tmp_path, each.issue(each.certificate.stem + "-client")) for each in (authority, other)
    )
    (tmp_path / "clients.pem").write_bytes(authority.certificate.read_bytes())
    lines = ("client_auth_type: RequireAndVerifyClientCert", "client_ca_file: clients.pem")
    with serving(tmp_path, authority.server(*lines)) as running:
        assert running.get(context=before).status == 200
        replace(tmp_path / "clients.pem", other.certificate.read_bytes())
        assert running.source.reload()
        assert running.get(context=after).status == 200
        with pytest.raises((ssl.SSLError, ConnectionError)):
            running.get(context=before)


def test_users_are_those_of_the_file_now_even_where_its_time_is_not(tmp_path: Path) -> None:
    with serving(tmp_path, PASSWORDS) as running:
        assert running.get(Authorization=basic("prometheus", "scrape")).status == 200
        times = running.file.stat()
        running.file.write_text(CHANGED)
        os.utime(running.file, ns=(times.st_atime_ns, times.st_mtime_ns))
        assert running.source.reload()
        assert running.get(Authorization=basic("prometheus", "scrape")).status == 401
        assert running.get(Authorization=basic("prometheus", "change")).status == 200


def test_a_file_that_becomes_wrong_is_reported_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    with serving(tmp_path, PASSWORDS) as running:
        loaded_at = running.health[0].loaded_at
        running.file.write_text("basic_auth_users: {prometheus: hunter2}")
        assert [running.source.reload() for _ in range(3)] == [False] * 3
        assert running.get(Authorization=basic("prometheus", "scrape")).status == 200
        assert running.health[1:] == [WebConfigHealth(success=False, loaded_at=loaded_at)]
        running.file.write_text(PASSWORDS)
        assert not running.source.reload()
        assert running.health[2].success
        assert running.health[2].loaded_at > loaded_at
    assert [record.levelname for record in caplog.records] == ["ERROR", "INFO"]
    assert "hunter2" not in str([vars(record) for record in caplog.records])


def test_files_that_do_not_change_are_not_loaded_again(tmp_path: Path) -> None:
    with serving(tmp_path, Authority(tmp_path).server()) as running:
        before = running.source.current
        os.utime(running.file)
        assert not running.source.reload()
        assert running.source.current is before
        assert len(running.health) == 1


WEAKER = {
    "emptied while it is written": ("", "turns TLS off"),
    "no TLS": (PASSWORDS, "turns TLS off"),
    "no password": ("tls", "asks for no password any more"),
    "no client certificate": ("tls passwords", "verifies no client certificate any more"),
}


@pytest.mark.parametrize(("content", "words"), WEAKER.values(), ids=WEAKER)
def test_a_reload_keeps_every_guard(tmp_path: Path, content: str, words: str, caplog: pytest.LogCaptureFixture) -> None:
    authority = Authority(tmp_path)
    tls = authority.server()
    client = trusting_context(tmp_path, authority.issue("client"))
    with serving(tmp_path, authority.server(*MTLS) + PASSWORDS) as running:
        running.file.write_text(content.replace("tls", tls).replace(" passwords", PASSWORDS))
        assert not running.source.reload()
        assert running.get(context=client).status == 401
        with pytest.raises((ssl.SSLError, ConnectionError)):
            running.get(context=trusting_context(tmp_path))
    (complaint,) = (record for record in caplog.records if record.levelname == "ERROR")
    assert words in str(vars(complaint))


def test_a_reload_looks_at_the_files_before_the_interval_is_over(tmp_path: Path) -> None:
    with serving(tmp_path, PASSWORDS, reload_seconds=600) as running:
        assert running.get(Authorization=basic("prometheus", "scrape")).status == 200
        running.file.write_text(CHANGED)
        running.source.look_now()
        wait_for(lambda: _opens(running, "change"))
        assert not _opens(running, "scrape")


def test_a_request_to_reload_is_passed_on_even_without_files_of_the_server(tmp_path: Path) -> None:
    read = threading.Event()
    threads: list[str] = []

    def reload() -> None:
        threads.append(threading.current_thread().name)
        read.set()

    source = SecuritySource(also=reload)
    server = WebServer(served(), Config(web_listen_addresses=(f"unix:{tmp_path / 'socket'}",)), security=source)
    server.bind()
    source.look_now()  # before it serves: the request is not lost
    with run(server):
        assert read.wait(10)
    assert threads == ["reload"]
    assert not (tmp_path / "socket").exists()


def test_requests_to_reload_that_come_while_a_file_hangs_are_one() -> None:
    answers, hangs, reads = threading.Event(), threading.Event(), []

    def reload() -> None:
        reads.append(threading.current_thread())
        hangs.set()
        answers.wait(10)

    source = SecuritySource(also=reload)
    source.watch(lambda: None)
    source.look_now()
    assert hangs.wait(10)
    for _ in range(5):
        source.look_now()
    answers.set()
    wait_for(lambda: len(reads) > 1)
    source.stop()
    reads[0].join(10)
    assert len(reads) == 2


def test_over_plain_http_a_client_that_is_about_to_ask_keeps_its_connection(tmp_path: Path) -> None:
    with serving(tmp_path, PASSWORDS, reload_seconds=0.02) as running, running.connect() as client:
        client.sendall(REQUEST[:10])
        running.file.write_text(CHANGED)
        wait_for(lambda: _opens(running, "change"))
        client.sendall(REQUEST[10:])
        assert client.recv(65536).startswith(b"HTTP/1.1 401 ")


def _opens(running: Running, password: str) -> bool:
    """Whether a password is taken."""
    return running.get(Authorization=basic("prometheus", password)).status == 200


class Row(NamedTuple):
    """A file that exporter-toolkit takes: the line of the documentation that says so, and words of the refusal here."""

    content: str
    differs: str
    refusal: str


MANY_USERS = "basic_auth_users:\n" + "".join(f"  u{n}: {HASH}\n" for n in range(MOST_USERS + 1))
FILES = {name: Row(**row) for name, row in CONFIGS["refused"].items()}
FILES["users beyond counting"] = Row(MANY_USERS, "1000 users", "1000")


@pytest.fixture(scope="module")
def differences(repository: Path) -> list[str]:
    """The rows of the documentation's tables of differences."""
    page = (repository / "docs" / "web-security.md").read_text(encoding="utf-8")
    (section,) = re.findall(r"^## Differences from[^\n]*\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    return [line for line in section.splitlines() if re.match(r"\| (?!Case |Setting )", line)]


@pytest.mark.parametrize("row", FILES.values(), ids=FILES)
def test_a_file_that_is_refused_here_alone_is_answered_with_what_would_be_right(folder: Path, row: Row) -> None:
    assert row.refusal in refusal(folder, row.content)


class Told(NamedTuple):
    """The alert that a client gets of a handshake, and what the log says."""

    alert: str
    cause: str
    differs: str = ""  # from what a Go exporter sends


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
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    return context


def _of_another_suite(toolkit: Path) -> ssl.SSLContext:
    context = _older(trusting_context(toolkit))
    context.set_ciphers("ECDHE-ECDSA-AES256-GCM-SHA384")
    return context


def _client(toolkit: Path) -> ssl.SSLContext:
    return trusting_context(toolkit, (toolkit / "client.pem", toolkit / "client.key"))


CHACHA = ("cipher_suites: [TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256]",)
HANDSHAKES: dict[str, tuple[Callable[[Path], ssl.SSLContext], tuple[str, ...], Told]] = {
    "no certificate": (trusting_context, MTLS, Told("certificate_required", "the client sent no certificate")),
    "no certificate, TLS 1.2": (
        lambda toolkit: _older(trusting_context(toolkit)),
        MTLS,
        Told("handshake_failure", "the client sent no certificate", "no certificate, with TLS 1.2"),
    ),
    "of another authority": (
        lambda toolkit: trusting_context(toolkit, Authority(toolkit, "elsewhere").issue("stranger")),
        MTLS,
        Told("unknown_ca", "unable to get local issuer certificate"),
    ),
    "a name that is not allowed": (
        _client,
        (*MTLS, "client_allowed_sans: [prometheus]"),
        Told("", "client_allowed_sans", "not in `client_allowed_sans`"),
    ),
    "an older version": (
        lambda toolkit: _older(trusting_context(toolkit)),
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
    # The challenge of a 401 names a realm here, as test_web_passwords shows.
    named = {"challenge", *(differs for differs in rows if differs)}
    lines = {name: [line for line in differences if name in line.split(" | ")[0]] for name in named}
    assert {name: len(found) for name, found in lines.items() if len(found) != 1} == {}
    assert set(differences) - {line for found in lines.values() for line in found} == set()
    assert [line for line in differences if re.search(r"\|\s*\|", line)] == [], "each has a reason, or both answers"
