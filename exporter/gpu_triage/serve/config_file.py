"""The file given with ``--web.config.file``, in the format of Prometheus' own exporters (exporter-toolkit).

Settings that Python's ssl doesn't support are rejected with a reason: a security setting is never silently ignored.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any

from gpu_triage.documents import AtMost, Keyed, Parsed, Place, Secret, parse_yaml, raised_as, read_file, read_value
from gpu_triage.errors import ConfigError
from gpu_triage.serve.messages import Headers

MOST_USERS = 1000
HIGHEST_COST = 16
"""Highest bcrypt cost accepted: each step doubles the time, and at 16 one check takes seconds."""

_HASH = re.compile(r"\$2[aby]\$(?P<cost>[0-9]{2})\$[./A-Za-z0-9]{53}")
_NO_INTERVAL = re.compile(r"|0+|(0+(\.0+)?(ns|us|µs|ms|s|m|h))+")
_RATE_LIMIT = (
    "rate_limit is not offered: one client could use up the rate of all, so that Prometheus is turned away; "
    "write interval: 0 or leave it out, --web.max-requests and the limit on connections bound what clients can take"
)

_TRUTHS = {"": True, "true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def _truth(text: str) -> bool:
    if text.lower() not in _TRUTHS:
        raise ValueError("write true or false")
    return _TRUTHS[text.lower()]


Truth = Annotated[bool | None, Parsed(_truth)]
_Texts = tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class TlsSection:
    """``tls_server_config`` as in Go: a bare key is unset, an empty list rejects all. Files are read as PEM."""

    cert: str | None = None
    cert_file: str | None = None
    key: Annotated[str | None, Secret()] = field(default=None, repr=False)
    key_file: str | None = None
    client_ca: str | None = None
    client_ca_file: str | None = None
    client_auth_type: str | None = None
    client_allowed_sans: _Texts = None
    min_version: str | None = None
    max_version: str | None = None
    cipher_suites: _Texts = None
    prefer_server_cipher_suites: Truth = None
    curve_preferences: _Texts = None


@dataclass(frozen=True, slots=True)
class WebConfig:
    """The settings in the file, with the content of the files it refers to."""

    tls: TlsSection | None = None  # None for plain HTTP
    headers: Headers = ()  # added to every response
    # bcrypt hash by user name, both as bytes; empty if no password is required
    users: Mapping[bytes, bytes] = field(default_factory=dict, repr=False)


def _header(*allowed: str) -> Callable[[str], str]:
    def parse(value: str) -> str:
        if value and allowed and value not in allowed:
            raise ValueError(f"write {' or '.join(allowed)}")
        if not value.isascii() or not value.isprintable():
            raise ValueError("write printable ASCII on one line")
        return value

    return parse


def _user(name: str) -> str:
    if ":" in name:
        raise ValueError("a user name has no colon in HTTP; change it")
    return name


def _hash(text: str) -> str:
    match = _HASH.fullmatch(text)
    if match is None:
        raise ValueError("is not a bcrypt hash; make one with gpu-triage web-password")
    if not 4 <= int(match["cost"]) <= HIGHEST_COST:  # noqa: PLR2004 - lowest cost in bcrypt
        raise ValueError(f"cost {int(match['cost'])} is out of range; hash with a cost from 4 to {HIGHEST_COST}")
    return text


def _no_interval(text: str) -> str:
    if not _NO_INTERVAL.fullmatch(text):
        raise ValueError(_RATE_LIMIT)
    return text


HEADERS = {
    name: Annotated[str | None, Parsed(_header(*allowed))]
    for name, allowed in {
        "Content-Security-Policy": (),
        "Strict-Transport-Security": (),
        "X-Content-Type-Options": ("nosniff",),
        "X-Frame-Options": ("deny", "sameorigin"),
        "X-XSS-Protection": (),
    }.items()
}


@dataclass(frozen=True, slots=True)
class HttpSection:
    http2: Truth = None
    headers: Annotated[Any, Keyed(HEADERS)] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RateLimit:
    """The ``rate_limit`` section; only turning it off is supported."""

    interval: Annotated[str | None, Parsed(_no_interval)] = None
    burst: int | None = None


@dataclass(frozen=True, slots=True)
class WebFile:
    tls_server_config: TlsSection = field(default_factory=TlsSection)
    http_server_config: HttpSection = field(default_factory=HttpSection)
    basic_auth_users: Annotated[
        dict[Annotated[str, Parsed(_user)], Annotated[str, Secret(), Parsed(_hash)]], AtMost(MOST_USERS)
    ] = field(default_factory=dict)
    rate_limit: RateLimit = field(default_factory=RateLimit)


def read_web_config(path: str) -> WebConfig:
    """Read the file; paths in it are relative to it. Raises ConfigError with file and key, but never a secret."""
    with raised_as(ConfigError):
        document = parse_yaml(read_file(path), path)
        file = read_value(WebFile, document, Place(path))
        headers = file.http_server_config.headers.items()
        return WebConfig(
            tls=_tls(path, file.tls_server_config) if (document or {}).get("tls_server_config") else None,
            headers=tuple((name.lower().encode(), value.encode()) for name, value in headers if value),
            users={name.encode(): hashed.encode() for name, hashed in file.basic_auth_users.items()},
        )


def _tls(path: str, section: TlsSection) -> TlsSection:
    """The section with the content of the files it refers to, relative to the configuration file."""
    where = Place(path).at("tls_server_config")

    def pem(key: str, inline: str | None, file: str | None) -> str | None:
        if inline and file:
            raise where.error(f"has {key} and {key}_file; keep one of them")
        # An absolute path is used as is. PEM files may have comments in any encoding.
        return read_file(Path(path).parent / file).decode("utf-8", "surrogateescape") if file else inline

    return replace(
        section,
        cert=pem("cert", section.cert, section.cert_file),
        key=pem("key", section.key, section.key_file),
        client_ca=pem("client_ca", section.client_ca, section.client_ca_file),
    )
