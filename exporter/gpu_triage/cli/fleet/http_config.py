"""The file given with ``--http.config.file``: HTTP client configuration in the format of Prometheus' own tools.

https://prometheus.io/docs/prometheus/latest/configuration/configuration/#http_config
Unsupported settings are rejected: ignoring a security setting would be dangerous.
"""

from __future__ import annotations

import base64
import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Final, Literal

from gpu_triage.documents import Parsed, Place, Secret, parse_yaml, quoted, raised_as, read_file, read_value
from gpu_triage.errors import ConfigError

_VERSIONS: Final = {
    "TLS10": ssl.TLSVersion.TLSv1,
    "TLS11": ssl.TLSVersion.TLSv1_1,
    "TLS12": ssl.TLSVersion.TLSv1_2,
    "TLS13": ssl.TLSVersion.TLSv1_3,
}
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
    """The ``basic_auth`` section."""

    username: str = ""
    username_file: str | None = None
    password: Annotated[str, Secret()] = field(default="", repr=False)
    password_file: str | None = None


@dataclass(frozen=True, slots=True)
class Authorization:
    """The ``authorization`` section."""

    type: _Line = "Bearer"
    credentials: Annotated[str | None, Secret(), Parsed(_one_line)] = field(default=None, repr=False)
    credentials_file: str | None = None


@dataclass(frozen=True, slots=True)
class TlsConfig:
    """The ``tls_config`` section."""

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
    """The values of one header."""

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
    """HTTP client settings for a server.

    Attributes:
        headers: sent with each request, including credentials.
        server_name: name that the server's certificate must match; None for the host in the URL.
        tls: settings for verifying the server, with the client certificate if any.
    """

    headers: tuple[tuple[str, str], ...] = field(default=(), repr=False)
    server_name: str | None = None
    tls: ssl.SSLContext = field(default_factory=ssl.create_default_context)


def read_http_config(path: str) -> HttpConfig:
    """Read the file at `path` and the files it refers to; relative paths are relative to its folder.

    Raises:
        ConfigError: a file is unreadable or invalid; the message never contains a secret.
    """
    with raised_as(ConfigError):
        file = read_value(HttpConfigFile, parse_yaml(read_file(path), path), Place(path))
        if file.basic_auth is not None and file.authorization is not None:
            raise Place(path).error("has basic_auth and authorization; keep one of them")
        headers = [("Authorization", each) for each in _credentials(path, file)]
        headers += [(name, value) for name, value in _headers(path, file.http_headers)]
        return HttpConfig(tuple(headers), file.tls_config.server_name or None, _context(path, file.tls_config))


def _credentials(path: str, file: HttpConfigFile) -> list[str]:
    if file.basic_auth is not None:
        section, where = file.basic_auth, Place(path).at("basic_auth")
        if section.username and section.username_file:
            raise where.error("has username and username_file; keep one of them")
        if section.password and section.password_file:
            raise where.error("has password and password_file; keep one of them")
        name = _line_of(path, section.username_file) if section.username_file else section.username
        password = _line_of(path, section.password_file) if section.password_file else section.password
        if not name or ":" in name:
            raise where.error("needs a username, without a colon")
        return ["Basic " + base64.b64encode(f"{name}:{password}".encode()).decode("ascii")]
    if file.authorization is not None:
        given, where = file.authorization, Place(path).at("authorization")
        if (given.credentials is None) == (given.credentials_file is None):
            raise where.error("needs either credentials or credentials_file")
        if given.type.lower() == "basic":
            raise where.error('type cannot be "basic"; use basic_auth')
        secret = given.credentials if given.credentials_file is None else _line_of(path, given.credentials_file)
        return [f"{given.type} {secret}"]
    return []


def _headers(path: str, sections: Mapping[str, HeaderValues]) -> list[tuple[str, str]]:
    return [
        (name, value)
        for name, section in sections.items()
        for value in (*section.values, *section.secrets, *(_line_of(path, each) for each in section.files))
    ]


def _line_of(path: str, file: str) -> str:
    """The content of a secret file, without the trailing line break."""
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
