"""What the client sends, and what it makes of servers that refuse it, hang, or answer with junk."""

import json
import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest
from tests.certificates import Authority
from tests.listening import QuietHandler, listening

from gpu_triage.cli.fleet.prometheus import MOST_BYTES, HttpConfig, PrometheusClient, read_http_config
from gpu_triage.errors import ConfigError, PrometheusUnavailable

pytestmark = pytest.mark.slow

VECTOR = {"resultType": "vector", "result": [{"metric": {"instance": "a"}, "value": [5, "2"]}]}
SERIES = json.dumps({"status": "success", "data": VECTOR, "warnings": ["a store is down"]}).encode()


class Server(ThreadingHTTPServer):
    """Answers each request as it is told, and remembers it."""

    status = 200
    body = SERIES
    methods = frozenset({"GET", "POST"})

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.seen: list[tuple[str, str, dict[str, str]]] = []


class Handler(QuietHandler):
    server: Server

    def respond(self) -> None:
        if self.command == "POST":
            self.body()
        self.server.seen.append((self.command, self.path, dict(self.headers)))
        self.answer(self.server.status if self.command in self.server.methods else 405, self.server.body)


@contextmanager
def serving(context: ssl.SSLContext | None = None) -> Iterator[Server]:
    server = Server()
    if context is not None:
        server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    with listening(server):
        yield server


@pytest.fixture
def server() -> Iterator[Server]:
    with serving() as running:
        yield running


def client_of(server: Server, config: HttpConfig | None = None, scheme: str = "http") -> PrometheusClient:
    return PrometheusClient(f"{scheme}://127.0.0.1:{server.server_port}/prefix", config or HttpConfig(), 5)


def config_of(folder: Path, text: str) -> HttpConfig:
    path = folder / "http.yml"
    path.write_text(text)
    return read_http_config(str(path))


@pytest.mark.parametrize(
    ("remarks", "kept"),
    [
        ({"warnings": ["a store is down"]}, ["a store is down"]),
        ({"isPartial": True}, ["the answer is partial: storage nodes are down"]),
        *(({"warnings": junk}, []) for junk in (5, {"a": 1}, "text", None)),
    ],
)
def test_series_are_read_and_remarks_of_the_server_are_kept(
    server: Server, remarks: dict[str, object], kept: list[str]
) -> None:
    server.body = json.dumps({"status": "success", "data": VECTOR, **remarks}).encode()
    client = client_of(server)
    (series,) = client.at("up", 5)
    assert (series.labels["instance"], series.labels["cluster"], series.value) == ("a", "", 2)
    assert client.warnings == kept
    assert server.seen[0][:2] == ("POST", "/prefix/api/v1/query")
    server.body = SERIES.replace(b'"2"', b'"NaN"')
    assert client.at("up", 5) == []


@pytest.mark.parametrize("value", ["7.5", "NaN", "1e300", "-1", None])
def test_the_clock_is_that_of_the_server(server: Server, value: str | None) -> None:
    result = [{"metric": {}, "value": [7, value]}] if value else []
    server.body = json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()
    if value == "7.5":
        assert client_of(server).now() == 7.5
        return
    with pytest.raises(PrometheusUnavailable, match="answers with no time"):
        client_of(server).now()


def test_a_proxy_that_lets_only_reads_through_is_asked_with_get(server: Server) -> None:
    server.methods = frozenset({"GET"})
    assert client_of(server).at('up{instance=~"\udcff"}', 5), "no UTF-8, and sent all the same"
    assert [method for method, _, _ in server.seen] == ["POST", "GET"]


@pytest.mark.parametrize(
    ("text", "header", "value"),
    [
        ("basic_auth: {username: me, password_file: secret}", "Authorization", "Basic bWU6czNjcmV0"),
        ("authorization: {credentials_file: secret}", "Authorization", "Bearer s3cret"),
        ("authorization: {type: Token, credentials: abc}", "Authorization", "Token abc"),
        ("http_headers: {X-Scope-OrgID: {values: [team-a]}}", "X-Scope-OrgID", "team-a"),
        ("http_headers: {X-Key: {files: [secret]}}", "X-Key", "s3cret"),
    ],
)
def test_credentials_and_headers_are_sent(server: Server, tmp_path: Path, text: str, header: str, value: str) -> None:
    (tmp_path / "secret").write_text("s3cret\n")
    config = config_of(tmp_path, text)
    assert value not in repr(config)
    client_of(server, config).at("up", 5)
    assert server.seen[0][2][header] == value


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("basic_auth: {username: me, password: s3cret}\nauthorization: {credentials: s3cret}", "keep one of them"),
        ("authorization: {credentials: s3cret, credentials_file: x}", "either credentials or credentials_file"),
        ('authorization: {credentials: "s3cret\\nX-Evil: 1"}', "on one line"),
        ("http_headers: {Host: {values: [x]}}", "is set by this program"),
        ('http_headers: {X-Key: {secrets: ["s3cret\\r\\n"]}}', "on one line"),
        ("tls_config: {cert_file: only.pem}", "needs cert_file and key_file"),
        ("tls_config: {ca: s3cret}", "cannot be used"),
        ("oauth2: {client_id: x}", "unknown key"),
        ("proxy_url: http://proxy", "unknown key"),
    ],
)
def test_a_file_that_cannot_be_used_is_rejected_without_its_secrets(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as raised:
        config_of(tmp_path, text)
    assert all("s3cret" not in problem for problem in raised.value.problems)


@pytest.mark.parametrize(
    ("status", "body", "said"),
    [
        (401, b"", "needs credentials"),
        (302, b"", "a redirect, which is not followed"),
        (404, b"<html>", "answers 404"),
        (200, b"<html>", "no JSON of the query API"),
        (200, b"[" * 100_000, "no JSON of the query API"),
        (200, b'{"status": "success", "data": []}', "no JSON of the query API"),
        (200, b'{"status": "success", "data": {"resultType": "matrix", "result": []}}', "no vector"),
        (200, b'{"status": "success", "data": {"resultType": "vector", "result": [1]}}', "another shape"),
        (200, SERIES.replace(b'"2"', b'"x"'), "another shape"),
        (200, SERIES.replace(b'"2"', b"9" * 400), "another shape"),
        (200, b" " * (MOST_BYTES + 1), "larger than 64 MiB"),
        (400, b'{"status": "error", "error": "parse error"}', "rejects the query: parse error"),
        (503, b'{"status": "error", "error": "too many queries"}', "too many queries"),
    ],
)
def test_junk_and_refusals_are_explained(server: Server, status: int, body: bytes, said: str) -> None:
    server.status, server.body = status, body
    assert said in _refused(client_of(server))


def test_nobody_listens() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    assert "Connection refused" in _refused(PrometheusClient(f"http://127.0.0.1:{port}", HttpConfig(), 1))
    assert PrometheusClient("http://[::1]", HttpConfig(), 5)._address == ("::1", 80)


@pytest.mark.parametrize("bytes_between", [b"", b"x"])
def test_a_server_that_hangs_or_drips_is_left_on_time(bytes_between: bytes) -> None:
    ended = threading.Event()

    def drip(listener: socket.socket) -> None:
        connection, _ = listener.accept()
        with connection:
            connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
            while not ended.wait(0.02):
                try:
                    connection.sendall(bytes_between)
                except OSError:
                    return

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=drip, args=(listener,))
        thread.start()
        try:
            client = PrometheusClient(f"http://127.0.0.1:{listener.getsockname()[1]}", HttpConfig(), 0.2)
            assert "does not answer within" in _refused(client)
        finally:
            ended.set()
            thread.join()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        *((url, "is no URL of Prometheus") for url in ("prometheus:9090", "ftp://x", "http://", "http://x/?q=1")),
        *((url, "is no URL of Prometheus") for url in ("http://x/a b", "http://x:y", "http://x/#a")),
        ("http://me:s3cret@prometheus:9090", "leave name and password to"),
    ],
)
def test_what_is_no_url_is_rejected(url: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said) as raised:
        PrometheusClient(url, HttpConfig(), 1)
    assert "s3cret" not in str(raised.value)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


def _tls(authority: Authority, *names: str, asks: bool = False) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("server", *names))
    if asks:
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(authority.certificate)
    return context


def _refused(client: PrometheusClient) -> str:
    with pytest.raises(PrometheusUnavailable) as raised:
        client.at("up", 5)
    return str(raised.value)


def asking(server: Server, authority: Authority, settings: str) -> PrometheusClient:
    return client_of(server, config_of(authority.folder, f"tls_config: {{{settings}}}"), "https")


def test_a_certificate_must_be_trusted_and_for_the_host(authority: Authority) -> None:
    with serving(_tls(authority, "DNS:prometheus.example")) as server:
        assert "is not trusted" in _refused(asking(server, authority, ""))
        assert "is not trusted" in _refused(asking(server, authority, "ca_file: ca.pem"))
        assert asking(server, authority, "ca_file: ca.pem, server_name: prometheus.example").at("up", 5)
        assert asking(server, authority, "insecure_skip_verify: true").at("up", 5)


def test_a_server_may_ask_for_a_certificate(authority: Authority) -> None:
    authority.issue("client")
    with serving(_tls(authority, "IP:127.0.0.1", asks=True)) as server:
        assert "does not answer" in _refused(asking(server, authority, "ca_file: ca.pem"))
        certificate = "ca_file: ca.pem, cert_file: client.pem, key_file: client.key"
        assert asking(server, authority, certificate).at("up", 5)
