"""Client for the query API of Prometheus or a compatible server: VictoriaMetrics, Mimir, Thanos.

Credentials, TLS and headers are in the file of ``--http.config.file``, in the format of Prometheus' own tools:
https://prometheus.io/docs/prometheus/latest/configuration/configuration/#http_config
Unsupported settings are rejected: ignoring a security setting would be dangerous.
"""

import base64
import http.client
import json
import math
import ssl
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Final, Literal, NamedTuple
from urllib.parse import urlencode, urlsplit

from gpu_triage import __version__
from gpu_triage.cli.bounded_http import ended_after, read_body
from gpu_triage.documents import Parsed, Place, Secret, parse_yaml, printable, quoted, raised_as, read_file, read_value
from gpu_triage.errors import ConfigError, PrometheusUnavailable
from gpu_triage.options.values import LATEST_SECONDS

_TLS: Final = ssl.TLSVersion
_VERSIONS: Final = {"TLS10": _TLS.TLSv1, "TLS11": _TLS.TLSv1_1, "TLS12": _TLS.TLSv1_2, "TLS13": _TLS.TLSv1_3}
_OWN_HEADERS: Final = frozenset({"authorization", "host", "content-length", "content-type", "transfer-encoding"})
_TOKEN_CHARACTERS: Final = frozenset("!#$%&'*+-.^_`|~")


def _one_line(text: str) -> str:
    """Validate a header value; a line break in it would start another header."""
    if not text.isascii() or not text.isprintable():
        raise ValueError("write printable ASCII on one line")
    return text


def _header_name(name: str) -> str:
    if not name or not name.isascii() or not all(each.isalnum() or each in _TOKEN_CHARACTERS for each in name):
        raise ValueError(f"{quoted(name)} is no name of a header")
    if name.lower() in _OWN_HEADERS:
        raise ValueError(f"{name} is set by this program; use basic_auth or authorization for credentials")
    return name


_Line = Annotated[str, Parsed(_one_line)]
_SecretLine = Annotated[str, Secret(), Parsed(_one_line)]


@dataclass(frozen=True, slots=True)
class BasicAuth:
    username: str = ""
    username_file: str | None = None
    password: Annotated[str, Secret()] = field(default="", repr=False)
    password_file: str | None = None


@dataclass(frozen=True, slots=True)
class Authorization:
    type: _Line = "Bearer"
    credentials: Annotated[str | None, Secret(), Parsed(_one_line)] = field(default=None, repr=False)
    credentials_file: str | None = None


@dataclass(frozen=True, slots=True)
class TlsConfig:
    ca: str | None = None
    ca_file: str | None = None
    cert_file: str | None = None
    key_file: str | None = None
    server_name: str | None = None
    insecure_skip_verify: bool = False
    min_version: Literal["TLS10", "TLS11", "TLS12", "TLS13"] | None = None
    max_version: Literal["TLS10", "TLS11", "TLS12", "TLS13"] | None = None


@dataclass(frozen=True, slots=True)
class HeaderValues:
    values: tuple[_Line, ...] = ()
    secrets: tuple[_SecretLine, ...] = field(default=(), repr=False)
    files: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HttpConfigFile:
    """The whole file. Redirects are never followed and HTTP/2 is never used, regardless of the two switches."""

    basic_auth: BasicAuth | None = None
    authorization: Authorization | None = None
    tls_config: TlsConfig = field(default_factory=TlsConfig)
    http_headers: dict[Annotated[str, Parsed(_header_name)], HeaderValues] = field(default_factory=dict)
    follow_redirects: bool = False
    enable_http2: bool = False


@dataclass(frozen=True, slots=True)
class HttpConfig:
    # sent with each request, including credentials
    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    server_name: str | None = None  # name that the server's certificate must match; None for the host in the URL
    # settings for verifying the server, with the client certificate if any
    tls: ssl.SSLContext = field(default_factory=ssl.create_default_context)


def read_http_config(path: str) -> HttpConfig:
    """Read the file at `path` and those it names, relative to its folder; a ConfigError never contains a secret."""
    with raised_as(ConfigError):
        file = read_value(HttpConfigFile, parse_yaml(read_file(path), path), Place(path))
        if file.basic_auth is not None and file.authorization is not None:
            raise Place(path).error("has basic_auth and authorization; keep one of them")
        headers = [*_credentials(path, file)]
        for name, each in file.http_headers.items():
            values = (*each.values, *each.secrets, *(_line_of(path, secret) for secret in each.files))
            headers += [(name, value) for value in values]
        return HttpConfig(tuple(headers), file.tls_config.server_name or None, _context(path, file.tls_config))


def _credentials(path: str, file: HttpConfigFile) -> Iterator[tuple[str, str]]:
    if file.basic_auth is not None:
        section, where = file.basic_auth, Place(path).at("basic_auth")
        for key in ("username", "password"):
            if getattr(section, key) and getattr(section, f"{key}_file"):
                raise where.error(f"has {key} and {key}_file; keep one of them")
        name = _line_of(path, section.username_file) if section.username_file else section.username
        password = _line_of(path, section.password_file) if section.password_file else section.password
        if not name or ":" in name:
            raise where.error("needs a username, without a colon")
        yield "Authorization", "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode("ascii")
    if file.authorization is not None:
        given, where = file.authorization, Place(path).at("authorization")
        if (given.credentials is None) == (given.credentials_file is None):
            raise where.error("needs either credentials or credentials_file")
        if given.type.lower() == "basic":
            raise where.error('type cannot be "basic"; use basic_auth')
        secret = given.credentials if given.credentials_file is None else _line_of(path, given.credentials_file)
        yield "Authorization", f"{given.type} {secret}"


def _line_of(path: str, file: str) -> str:
    name = Path(path).parent / file
    try:
        return _one_line(read_file(name).decode("utf-8", "replace").strip())
    except ValueError as error:
        raise Place(str(name)).error(f"its content cannot be sent; {error}") from error


def _context(path: str, section: TlsConfig) -> ssl.SSLContext:
    where, folder = Place(path).at("tls_config"), Path(path).parent
    if section.ca and section.ca_file:
        raise where.error("has ca and ca_file; keep one of them")
    if bool(section.cert_file) != bool(section.key_file):
        raise where.error("needs cert_file and key_file, or neither")
    ca = read_file(folder / section.ca_file).decode("utf-8", "replace") if section.ca_file else section.ca
    try:
        context = ssl.create_default_context(cadata=ca or None)
        if section.cert_file and section.key_file:
            # An empty password, or OpenSSL would prompt for that of an encrypted key on the terminal.
            context.load_cert_chain(folder / section.cert_file, folder / section.key_file, password="")
        if section.min_version:
            context.minimum_version = _VERSIONS[section.min_version]
        if section.max_version:
            context.maximum_version = _VERSIONS[section.max_version]
    except (OSError, ValueError) as error:
        named = ", ".join(filter(None, (section.ca_file, section.cert_file, section.key_file)))
        raise where.error(f"a certificate or key cannot be used{named and f' ({named})'}: {error}") from error
    if section.insecure_skip_verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


MOST_BYTES: Final = 64 * 1024**2  # limit for one response: about 200,000 series
_OTHER_SHAPE: Final = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Exceptions raised when a document doesn't have the expected structure."""
_TOO_LONG: Final = f"the answer is larger than {MOST_BYTES >> 20} MiB; select fewer hosts with --instance"
_LONGEST_SHOWN: Final = 300
_MOST_WARNINGS: Final = 10
_NO_POST: Final = frozenset({http.client.METHOD_NOT_ALLOWED, http.client.NOT_IMPLEMENTED})


class Series(NamedTuple):
    """One series of a response: its labels ("" for missing ones), and its samples as Unix time and value."""

    labels: Mapping[str, str]
    samples: tuple[tuple[float, float], ...]

    @property
    def value(self) -> float:
        return self.samples[-1][1]


class HttpServer:
    """The server at a URL, which may include a path, such as Mimir's ``https://mimir/prometheus``.

    Raises ConfigError, with the name of the `option`, if the URL is invalid, and PrometheusUnavailable if the server
    does not respond as expected.
    """

    def __init__(self, url: str, config: HttpConfig, timeout_seconds: float, option: str = "--prometheus") -> None:
        parts = _parts(url, option)
        self.url = url.rstrip("/")
        self._https = parts.scheme == "https"
        port = http.client.HTTPS_PORT if self._https else http.client.HTTP_PORT
        self._address = parts.hostname or "", parts.port or port
        self._path = parts.path.rstrip("/")
        self._config = config
        self._timeout_seconds = timeout_seconds

    def send(self, method: str, path: str, body: bytes = b"", kind: str = "") -> tuple[int, bytes]:
        """Send a request with a body of this content type, if any; returns status and answer."""
        connection = http.client.HTTPConnection(*self._address, timeout=self._timeout_seconds)
        try:
            with ended_after(connection, self._timeout_seconds):
                connection.connect()
                if self._https:  # to a host with a certificate that may be for a different name
                    name = self._config.server_name or self._address[0]
                    connection.sock = self._config.tls.wrap_socket(connection.sock, server_hostname=name)
                connection.putrequest(method, self._path + path)
                if kind:
                    connection.putheader("Content-Type", kind)
                    connection.putheader("Content-Length", str(len(body)))
                connection.putheader("Accept", "application/json")
                connection.putheader("User-Agent", f"gpu-triage/{__version__}")
                for name, value in self._config.headers:
                    connection.putheader(name, value)
                connection.endheaders(body or None)
                # The connection does not close an answer that is left before its end.
                with connection.getresponse() as answer:
                    return answer.status, read_body(answer, MOST_BYTES, _TOO_LONG)
        except TimeoutError as error:
            raise PrometheusUnavailable(
                f"{self.url} does not answer within {self._timeout_seconds:g} s; raise --timeout, or select fewer hosts"
            ) from error
        except ssl.SSLCertVerificationError as error:
            raise PrometheusUnavailable(
                f"the certificate of {self.url} is not trusted: {error.verify_message}; set tls_config in the file of "
                "--http.config.file"
            ) from error
        except (OSError, http.client.HTTPException) as error:
            raise PrometheusUnavailable(f"{self.url} does not answer: {error or type(error).__name__}") from error
        finally:
            connection.close()


class PrometheusClient(HttpServer):
    """Queries a server of Prometheus, or one with the same query API."""

    def __init__(self, url: str, config: HttpConfig, timeout_seconds: float) -> None:
        super().__init__(url, config, timeout_seconds)
        self.warnings: list[str] = []  # in responses, such as that part of the data is missing
        self._method = "POST"

    def now(self) -> float:
        """The server's own clock, in Unix seconds."""
        found = self.at("vector(time())")
        if not found or not 0 <= found[0].value <= LATEST_SECONDS:
            raise self._junk("no time")
        return found[0].value

    def at(self, query: str, seconds: float | None = None) -> list[Series]:
        """Run an instant query at a Unix time, or now."""
        parameters = {"query": query} | ({} if seconds is None else {"time": f"{seconds:.3f}"})
        return self._series(self._ask("query", parameters), "vector", lambda each: [each["value"]])

    def over(self, query: str, start: float, end: float, step_seconds: float) -> list[Series]:
        """Run a range query between two Unix times, inclusive."""
        parameters = {"query": query, "start": f"{start:.3f}", "end": f"{end:.3f}", "step": f"{step_seconds:g}"}
        return self._series(self._ask("query_range", parameters), "matrix", lambda each: each["values"])

    def _series(self, data: dict[str, Any], kind: str, samples_of: Any) -> list[Series]:
        if data.get("resultType") != kind:
            raise self._junk(f"no {kind}")
        try:
            found = [Series(_labels(each["metric"]), tuple(_numbers(samples_of(each)))) for each in data["result"]]
        except _OTHER_SHAPE as error:
            raise self._junk(f"a {kind} of another shape") from error
        return [each for each in found if each.samples]

    def _ask(self, path: str, parameters: dict[str, str]) -> dict[str, Any]:
        # A regular expression typed in a non-UTF-8 terminal matches nothing.
        body = urlencode({**parameters, "timeout": f"{self._timeout_seconds:g}s"}, errors="replace")
        status, answer = self._send(path, body)
        if status in _NO_POST and self._method == "POST":
            # A proxy that only allows reads.
            self._method = "GET"
            status, answer = self._send(path, body)
        document = self._document(status, answer)
        for warning in _remarks(document):
            line = printable(str(warning))[:_LONGEST_SHOWN]
            if line not in self.warnings and len(self.warnings) < _MOST_WARNINGS:
                self.warnings.append(line)
        data: dict[str, Any] = document["data"]
        return data

    def _document(self, status: int, answer: bytes) -> dict[str, Any]:
        try:
            read = json.loads(answer)
        except (ValueError, RecursionError):
            read = None
        document: dict[str, Any] = read if isinstance(read, dict) else {}
        if isinstance(document.get("error"), str) and document.get("status") == "error":
            raise PrometheusUnavailable(f"{self.url} rejects the query: {document['error'][:_LONGEST_SHOWN]}")
        if status in (http.client.UNAUTHORIZED, http.client.FORBIDDEN):
            raise PrometheusUnavailable(
                f"{self.url} answers {status}: it needs credentials, or others; write them to the file of "
                "--http.config.file"
            )
        if http.client.MULTIPLE_CHOICES <= status < http.client.BAD_REQUEST:
            raise PrometheusUnavailable(f"{self.url} answers {status}, a redirect, which is not followed; fix the URL")
        if status != http.client.OK:
            raise PrometheusUnavailable(
                f"{self.url} answers {status} to {self._path}/api/v1/query; is it the URL of a Prometheus?"
            )
        if document.get("status") != "success" or not isinstance(document.get("data"), dict):
            raise self._junk("no JSON of the query API")
        return document

    def _junk(self, what: str) -> PrometheusUnavailable:
        return PrometheusUnavailable(f"{self.url} answers with {what}; is it the URL of a Prometheus?")

    def _send(self, path: str, body: str) -> tuple[int, bytes]:
        target = f"/api/v1/{path}"
        if self._method == "GET":
            return self.send("GET", f"{target}?{body}")
        return self.send("POST", target, body.encode("ascii"), "application/x-www-form-urlencoded")


def _remarks(document: dict[str, Any]) -> Iterator[object]:
    warnings = document.get("warnings")
    yield from warnings if isinstance(warnings, list) else ()
    if document.get("isPartial") is True:  # VictoriaMetrics
        yield "the answer is partial: storage nodes are down"


def _labels(metric: Any) -> dict[str, str]:
    if not isinstance(metric, dict) or not all(isinstance(value, str) for value in metric.values()):
        raise TypeError("labels")
    return defaultdict(str, metric)


def _numbers(samples: Any) -> Iterator[tuple[float, float]]:
    for at, value in samples:
        moment, number = float(at), float(value)
        if math.isfinite(moment) and math.isfinite(number):
            yield moment, number


def _parts(url: str, option: str) -> Any:
    server = option.removeprefix("--")
    wrong = f"{option}: {url!r} is no URL of {server.capitalize()}; write one such as https://{server}.example.org"
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        raise ConfigError(f"{wrong}: {error}") from error
    if parts.username is not None or parts.password is not None:
        raise ConfigError(
            f"{option}: leave name and password to the file of --http.config.file; everybody on this host can read "
            "a command line"
        )
    is_plain = url.isascii() and url.isprintable() and " " not in url and not parts.query + parts.fragment
    if parts.scheme not in ("http", "https") or not parts.hostname or not is_plain:
        raise ConfigError(wrong)
    return parts
