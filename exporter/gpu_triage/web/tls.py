"""TLS settings in Go's words, as an ssl.SSLContext."""

from __future__ import annotations

import ipaddress
import os
import ssl
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, NoReturn

from gpu_triage.errors import ConfigError

_VERSIONS = {"TLS12": ssl.TLSVersion.TLSv1_2, "TLS13": ssl.TLSVersion.TLSv1_3}
_OLD_VERSIONS = ("TLS10", "TLS11")
_CLIENT_AUTH = {
    "NoClientCert": ssl.CERT_NONE,
    "VerifyClientCertIfGiven": ssl.CERT_OPTIONAL,
    "RequireAndVerifyClientCert": ssl.CERT_REQUIRED,
}
_UNVERIFIED = ("RequestClientCert", "RequireAnyClientCert", "RequireClientCert")
_CURVES = {"CurveP256": "prime256v1", "CurveP384": "secp384r1", "CurveP521": "secp521r1", "X25519": "X25519"}
_TLS13_SUITES = ("TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256")
_TLS12_SUITES = {
    "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256": "ECDHE-ECDSA-AES128-GCM-SHA256",
    "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384": "ECDHE-ECDSA-AES256-GCM-SHA384",
    "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-ECDSA-CHACHA20-POLY1305",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA": "ECDHE-ECDSA-AES128-SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA": "ECDHE-ECDSA-AES256-SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256": "ECDHE-RSA-AES128-GCM-SHA256",
    "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384": "ECDHE-RSA-AES256-GCM-SHA384",
    "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256": "ECDHE-RSA-CHACHA20-POLY1305",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA": "ECDHE-RSA-AES128-SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA": "ECDHE-RSA-AES256-SHA",
}

PeerCertificate = Mapping[str, Any]
"""What `ssl.SSLSocket.getpeercert` gives."""


@dataclass(frozen=True, slots=True)
class TlsSettings:
    """What is asked of TLS, with the content of certificate and key files.

    Attributes:
        source: file and section, for messages.
        certificate: PEM, the server's own first, then its chain.
        key: PEM, not encrypted.
        client_ca: PEM; None where clients' certificates are not verified.
        client_auth_type: Go's ClientAuthType by name.
        client_allowed_sans: a client's certificate needs one of them; None allows all.
        min_version, max_version: ``TLS12`` or ``TLS13``.
        cipher_suites: for TLS 1.2, Go's names, the best first; empty for OpenSSL's default.
        prefer_server_cipher_suites: whether their order counts, or the client's.
        curve_preferences: Go's names; empty for OpenSSL's default.
    """

    source: str
    certificate: bytes | None
    key: bytes | None = field(repr=False)
    client_ca: bytes | None
    client_auth_type: str = "NoClientCert"
    client_allowed_sans: tuple[str, ...] | None = None
    min_version: str = "TLS12"
    max_version: str = "TLS13"
    cipher_suites: tuple[str, ...] = ()
    prefer_server_cipher_suites: bool = True
    curve_preferences: tuple[str, ...] = ()


def server_context(settings: TlsSettings) -> ssl.SSLContext:
    """The context to serve with.

    Raises:
        ConfigError: something is missing, wrong, or beyond Python's ssl; the message names the key.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # Unasked renegotiation costs the server more than the client (OpenSSL 3 refuses it by itself).
    context.options |= ssl.OP_NO_RENEGOTIATION
    # A client that could also speak HTTP/2 learns here that this server does not.
    context.set_alpn_protocols(["http/1.1"])
    _set_certificate(context, settings)
    _set_clients(context, settings)
    _set_versions(context, settings)
    _set_ciphers(context, settings)
    _set_curve(context, settings)
    return context


def admits(settings: TlsSettings, certificate: PeerCertificate | None) -> bool:
    """Whether a client with this verified certificate (None: it sent none) is among those allowed."""
    if settings.client_allowed_sans is None:
        return True
    names = (certificate or {}).get("subjectAltName", ())
    return any(_plain(kind, name) in settings.client_allowed_sans for kind, name in names)


def _plain(kind: str, name: str) -> str:
    # OpenSSL writes IPv6 addresses in full and in capitals; Go, and so the file, writes them short.
    return str(ipaddress.ip_address(name.strip())) if kind == "IP Address" else name


def _set_certificate(context: ssl.SSLContext, settings: TlsSettings) -> None:
    for name, content in (("cert", settings.certificate), ("key", settings.key)):
        if not content:
            raise ConfigError(
                f"{settings.source}: write {name}_file (or {name}); TLS needs both cert_file and key_file"
            )

    def refuse() -> NoReturn:
        raise ConfigError(f"{settings.source}: the key is encrypted; write one that is not, readable by this user only")

    with ExitStack() as opened:
        # ssl reads files only. What is loaded must be what was compared with the last load, and no key that stands
        # in the YAML file may reach a disk: files in memory serve both.
        certificate, key = (_in_memory(opened, content or b"") for content in (settings.certificate, settings.key))
        try:
            context.load_cert_chain(certificate, key, password=refuse)
        except OSError as error:  # SSLError is one
            why = str(getattr(error, "reason", None) or error)
            if why == "KEY_VALUES_MISMATCH":
                why = "they do not belong together"
            raise ConfigError(
                f"{settings.source}: certificate and key cannot be used: {why}; write PEM files that match"
            ) from error


def _in_memory(opened: ExitStack, content: bytes) -> str:
    file = opened.enter_context(os.fdopen(os.memfd_create("pem"), "wb"))
    file.write(content)
    file.flush()
    return f"/proc/self/fd/{file.fileno()}"


def _set_clients(context: ssl.SSLContext, settings: TlsSettings) -> None:
    kind = settings.client_auth_type
    if kind in _UNVERIFIED:
        raise ConfigError(
            f"{settings.source}.client_auth_type: Python's ssl cannot ask for certificates without verifying them, so "
            f"{kind} cannot be done; write RequireAndVerifyClientCert, VerifyClientCertIfGiven or NoClientCert"
        )
    if kind not in _CLIENT_AUTH:
        raise ConfigError(f"{settings.source}.client_auth_type: unknown; write one of {', '.join(_CLIENT_AUTH)}")
    verified = _CLIENT_AUTH[kind] is not ssl.CERT_NONE
    if verified and not settings.client_ca:
        raise ConfigError(f"{settings.source}: {kind} needs client_ca_file; write whose certificates to accept")
    if settings.client_ca and not verified:
        raise ConfigError(
            f"{settings.source}: client_ca_file has no effect with {kind}; "
            "add client_auth_type: RequireAndVerifyClientCert or leave it out"
        )
    if settings.client_allowed_sans is not None and kind != "RequireAndVerifyClientCert":
        raise ConfigError(
            f"{settings.source}: client_allowed_sans needs RequireAndVerifyClientCert; "
            "write that as client_auth_type, or leave the names out"
        )
    context.verify_mode = _CLIENT_AUTH[kind]
    if settings.client_ca:
        try:
            context.load_verify_locations(cadata=settings.client_ca.decode("ascii", "replace"))
        except (ssl.SSLError, ValueError) as error:
            raise ConfigError(
                f"{settings.source}: client_ca_file cannot be used: {getattr(error, 'reason', None) or error}; "
                "write PEM certificates"
            ) from error


def _set_versions(context: ssl.SSLContext, settings: TlsSettings) -> None:
    for name, version in (("min_version", settings.min_version), ("max_version", settings.max_version)):
        if version not in _VERSIONS:
            why = "is not served any more, it is broken" if version in _OLD_VERSIONS else "is no TLS version"
            raise ConfigError(f"{settings.source}.{name}: {version} {why}; write TLS12 or TLS13")
    lowest, highest = _VERSIONS[settings.min_version], _VERSIONS[settings.max_version]
    if lowest > highest:
        raise ConfigError(f"{settings.source}: min_version is above max_version; swap them")
    context.minimum_version, context.maximum_version = lowest, highest


def _set_ciphers(context: ssl.SSLContext, settings: TlsSettings) -> None:
    if settings.prefer_server_cipher_suites:
        context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    else:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    if not settings.cipher_suites:
        return
    key = f"{settings.source}.cipher_suites"
    for name in settings.cipher_suites:
        if name not in _TLS12_SUITES and name not in _TLS13_SUITES:
            raise ConfigError(f"{key}: {name!r} is unknown or insecure; write names of Go's tls.CipherSuites()")
    # As in Go: those of TLS 1.3 cannot be chosen among, and may be listed.
    wanted = [_TLS12_SUITES[name] for name in settings.cipher_suites if name in _TLS12_SUITES]
    if not wanted:
        if settings.max_version != "TLS13":
            raise ConfigError(f"{key}: none is of TLS 1.2, and max_version is TLS12; add one")
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return
    try:
        context.set_ciphers(":".join(wanted))
    except ssl.SSLError as error:
        raise ConfigError(f"{key}: this host's OpenSSL takes none of them: {error.reason}; write others") from error
    missing = set(wanted) - {cipher["name"] for cipher in context.get_ciphers()}
    if missing:
        raise ConfigError(f"{key}: this host's OpenSSL has no {', '.join(sorted(missing))}; leave them out")


def _set_curve(context: ssl.SSLContext, settings: TlsSettings) -> None:
    key = f"{settings.source}.curve_preferences"
    for name in settings.curve_preferences:
        if name not in _CURVES:
            raise ConfigError(f"{key}: {name!r} is unknown; write one of {', '.join(_CURVES)}")
    if len(settings.curve_preferences) > 1:
        raise ConfigError(f"{key}: Python's ssl can set one curve, no order of several; keep one, or leave the key out")
    for name in settings.curve_preferences:
        try:
            context.set_ecdh_curve(_CURVES[name])
        except (ValueError, ssl.SSLError) as error:  # X25519 before Python 3.11
            raise ConfigError(f"{key}: Python's ssl cannot set {name} on this host; write another curve") from error
