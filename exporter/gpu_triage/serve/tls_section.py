"""TLS settings in the web configuration file; separate from the code that uses them, which imports OpenSSL."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Annotated

from gpu_triage.documents import Parsed, Secret

_TRUTHS = {"": True, "true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def _truth(text: str) -> bool:
    if text.lower() not in _TRUTHS:
        raise ValueError("write true or false")
    return _TRUTHS[text.lower()]


Truth = Annotated[bool | None, Parsed(_truth)]
_Texts = tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class TlsSection:
    """``tls_server_config``, with Go's semantics: a key without a value is unset, an empty list rejects all clients.

    Once read, `cert`, `key` and `client_ca` hold PEM, including content loaded from files.
    """

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
