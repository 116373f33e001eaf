"""The file of ``--web.config.file``, in the format that Prometheus's own exporters share (exporter-toolkit).

What Python's ssl cannot do is refused with a reason: a setting about security is never passed over in silence.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from gpu_triage.errors import ConfigError
from gpu_triage.given import read_document
from gpu_triage.options.document import compose_document, is_empty
from gpu_triage.options.values import quoted
from gpu_triage.web.tls import TlsSettings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gpu_triage.web.answer import Headers

MOST_USERS = 1000
HIGHEST_COST = 16
"""Of a bcrypt hash: each step doubles the time, and at 16 one check takes seconds."""

_HASH = re.compile(rb"\$2[aby]\$(?P<cost>[0-9]{2})\$[./A-Za-z0-9]{53}")
_TRUTHS = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
_HEADERS: dict[str, tuple[str, ...]] = {
    "Content-Security-Policy": (),
    "Strict-Transport-Security": (),
    "X-Content-Type-Options": ("nosniff",),
    "X-Frame-Options": ("deny", "sameorigin"),
    "X-XSS-Protection": (),
}
_SECTIONS = ("tls_server_config", "http_server_config", "basic_auth_users")
_RATE_LIMIT = (
    "rate_limit is not offered: one client could use up the rate of all, so that Prometheus is turned away; "
    "leave it out, --web.max-requests and the limit on connections bound what clients can take"
)


@dataclass(frozen=True, slots=True)
class WebConfig:
    """What the file asks for, with the content of the files it names.

    Attributes:
        tls: None serves plain HTTP.
        headers: added to every answer, names in lower case.
        users: bcrypt hash by user name, both as bytes; empty where no password is asked for.
    """

    tls: TlsSettings | None = None
    headers: Headers = ()
    users: Mapping[bytes, bytes] = field(default_factory=dict, repr=False)


def read_web_config(path: str) -> WebConfig:
    """The file at `path`, checked; relative paths in it start from its folder.

    Raises:
        ConfigError: it, or a file it names, cannot be read or understood, or asks for what cannot be done; the message
            names the file and the key, and repeats no secret.
    """
    root = compose_document(path, read_document(path))
    sections = _mapping(path, "", root)
    if "rate_limit" in sections:
        raise ConfigError(f"{path}: {_RATE_LIMIT}")
    _only(path, "", sections, _SECTIONS)
    return WebConfig(
        tls=_tls(path, _mapping(path, "tls_server_config", sections.get("tls_server_config"))),
        headers=_http(path, _mapping(path, "http_server_config", sections.get("http_server_config"))),
        users=_users(path, _mapping(path, "basic_auth_users", sections.get("basic_auth_users"))),
    )


def _tls(path: str, keys: dict[str, yaml.Node]) -> TlsSettings | None:
    section = "tls_server_config"
    _only(path, section, keys, _TLS_KEYS)
    if not keys:
        return None
    texts = {key: _text(path, f"{section}.{key}", keys[key]) for key in keys.keys() - _TLS_LISTS}
    lists = {key: _texts(path, f"{section}.{key}", keys[key]) for key in keys.keys() & _TLS_LISTS}
    prefer = texts.pop("prefer_server_cipher_suites", None)
    return TlsSettings(
        source=f"{path}: {section}",
        certificate=_pem(path, section, "cert", texts),
        key=_pem(path, section, "key", texts),
        client_ca=_pem(path, section, "client_ca", texts),
        client_auth_type=texts.get("client_auth_type") or "NoClientCert",
        client_allowed_sans=lists.get("client_allowed_sans"),
        min_version=texts.get("min_version") or "TLS12",
        max_version=texts.get("max_version") or "TLS13",
        cipher_suites=lists.get("cipher_suites", ()),
        prefer_server_cipher_suites=_truth(path, f"{section}.prefer_server_cipher_suites", prefer, default=True),
        curve_preferences=lists.get("curve_preferences", ()),
    )


_TLS_LISTS = frozenset({"cipher_suites", "curve_preferences", "client_allowed_sans"})
_TLS_KEYS = (
    *("cert", "cert_file", "key", "key_file", "client_ca", "client_ca_file", "client_auth_type"),
    *("min_version", "max_version", "prefer_server_cipher_suites", *sorted(_TLS_LISTS)),
)


def _pem(path: str, section: str, key: str, texts: dict[str, str]) -> bytes | None:
    inline, file = texts.get(key), texts.get(f"{key}_file")
    if inline and file:
        raise ConfigError(f"{path}: {section} has {key} and {key}_file; keep one of them")
    if inline:
        return inline.encode()
    # An absolute path stays as it is.
    return read_document(str(Path(path).parent / file)) if file else None


def _http(path: str, keys: dict[str, yaml.Node]) -> Headers:
    section = "http_server_config"
    _only(path, section, keys, ("http2", "headers"))
    if "http2" in keys:
        _truth(path, f"{section}.http2", _text(path, f"{section}.http2", keys["http2"]), default=True)
    given = _mapping(path, f"{section}.headers", keys.get("headers"))
    _only(path, f"{section}.headers", given, tuple(_HEADERS))
    headers: list[tuple[bytes, bytes]] = []
    for name, node in given.items():
        where = f"{path}: {section}.headers.{name}"
        value = _text(path, f"{section}.headers.{name}", node)
        allowed = _HEADERS[name]
        if value and allowed and value not in allowed:
            raise ConfigError(f"{where}: {quoted(value)} will not do; write {' or '.join(allowed)}")
        if not value.isascii() or not value.isprintable():
            raise ConfigError(f"{where}: cannot be a header; write printable ASCII on one line")
        if value:
            headers.append((name.lower().encode(), value.encode()))
    return tuple(headers)


def _users(path: str, names: dict[str, yaml.Node]) -> dict[bytes, bytes]:
    if len(names) > MOST_USERS:
        raise ConfigError(f"{path}: basic_auth_users has more than {MOST_USERS} users; use client certificates instead")
    users: dict[bytes, bytes] = {}
    for name, node in names.items():
        hashed = _text(path, f"basic_auth_users: {quoted(name)}", node).encode()
        match = _HASH.fullmatch(hashed)
        if ":" in name:
            raise ConfigError(f"{path}: basic_auth_users: {quoted(name)}: a user name has no colon in HTTP; change it")
        if match is None:
            raise ConfigError(
                f"{path}: basic_auth_users: {quoted(name)}: has no bcrypt hash; make one with gpu-triage web-password"
            )
        if not 4 <= int(match["cost"]) <= HIGHEST_COST:  # noqa: PLR2004 - bcrypt's own least cost
            raise ConfigError(
                f"{path}: basic_auth_users: {quoted(name)}: cost {int(match['cost'])} is out of range; "
                f"hash with a cost from 4 to {HIGHEST_COST}, such as 10"
            )
        users[name.encode()] = hashed
    return users


def _mapping(path: str, name: str, node: yaml.Node | None) -> dict[str, yaml.Node]:
    where = f"{path}: {name}" if name else path
    if node is None or is_empty(node):
        return {}
    if not isinstance(node, yaml.MappingNode):
        raise ConfigError(f"{where}: is no mapping; write keys and values below it")
    keys: dict[str, yaml.Node] = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise ConfigError(f"{where}: line {key.start_mark.line + 1}: a key is no plain word; write a name")
        if key.value in keys:
            raise ConfigError(f"{where}: {quoted(key.value)} is written twice; keep one of them")
        keys[key.value] = value
    return keys


def _only(path: str, name: str, keys: dict[str, yaml.Node], allowed: tuple[str, ...]) -> None:
    for key in keys:
        if key not in allowed:
            close = get_close_matches(key, allowed, n=1)
            right = f"did you mean {close[0]}?" if close else f"write one of {', '.join(allowed)}"
            raise ConfigError(f"{path}: {name}{': ' if name else ''}unknown key {quoted(key)}; {right}")


def _text(path: str, name: str, node: yaml.Node) -> str:
    if is_empty(node):
        return ""
    if not isinstance(node, yaml.ScalarNode):
        raise ConfigError(f"{path}: {name}: is no plain value; write one value")
    return str(node.value)


def _texts(path: str, name: str, node: yaml.Node) -> tuple[str, ...]:
    if is_empty(node):
        return ()
    if not isinstance(node, yaml.SequenceNode):
        raise ConfigError(f"{path}: {name}: is no list; write one, such as [a, b]")
    return tuple(_text(path, name, each) for each in node.value)


def _truth(path: str, name: str, text: str | None, *, default: bool) -> bool:
    if not text:
        return default
    if text.lower() not in _TRUTHS:
        raise ConfigError(f"{path}: {name}: {quoted(text)} will not do; write true or false")
    return _TRUTHS[text.lower()]
