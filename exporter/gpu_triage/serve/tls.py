"""Converts TLS settings with Go's names to an ssl.SSLContext."""

from __future__ import annotations

import ipaddress
import os
import ssl
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, NoReturn

from gpu_triage.errors import ConfigError
from gpu_triage.serve.tls_section import TlsSection

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


class _Unusable(Exception):
    """A setting that is missing, invalid, or not supported by Python's ssl."""

    def __init__(self, message: str, key: str = "") -> None:
        super().__init__(f".{key}: {message}" if key else f": {message}")


def server_context(section: TlsSection, source: str) -> ssl.SSLContext:
    """Create the SSL context for the server.

    Raises:
        ConfigError: a setting is missing, invalid, or not supported by Python's ssl; the message names the key.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # Client-initiated renegotiation costs the server more than the client; OpenSSL 3 already rejects it by default.
    context.options |= ssl.OP_NO_RENEGOTIATION
    # ALPN: clients that support HTTP/2 learn that this server doesn't.
    context.set_alpn_protocols(["http/1.1"])
    try:
        for setting in (_set_certificate, _set_clients, _set_versions, _set_ciphers, _set_curve):
            setting(context, section)
    except _Unusable as error:
        raise ConfigError(f"{source}{error}") from error
    return context


def admits(section: TlsSection, certificate: Mapping[str, Any] | None) -> bool:
    """Whether to allow a client with this verified certificate, in the format of getpeercert; None if it sent none."""
    if section.client_allowed_sans is None:
        return True
    names = (certificate or {}).get("subjectAltName", ())
    return any(_plain(kind, name) in section.client_allowed_sans for kind, name in names)


def _plain(kind: str, name: str) -> str:
    # OpenSSL prints IPv6 addresses uncompressed and in upper case; Go, and so the file, compresses them.
    return str(ipaddress.ip_address(name.strip())) if kind == "IP Address" else name


def _set_certificate(context: ssl.SSLContext, section: TlsSection) -> None:
    for name, content in (("cert", section.cert), ("key", section.key)):
        if not content:
            raise _Unusable(f"write {name}_file (or {name}); TLS needs both cert_file and key_file")

    def refuse() -> NoReturn:
        raise _Unusable("the key is encrypted; write one that is not, readable by this user only")

    with ExitStack() as opened:
        # ssl only loads files. They must have the content that was compared with the last load, and a key from the
        # YAML file must not be written to disk: in-memory files ensure both.
        certificate, key = (_in_memory(opened, content or "") for content in (section.cert, section.key))
        try:
            context.load_cert_chain(certificate, key, password=refuse)
        except OSError as error:  # includes SSLError
            why = str(getattr(error, "reason", None) or error)
            if why == "KEY_VALUES_MISMATCH":
                why = "they do not belong together"
            raise _Unusable(f"certificate and key cannot be used: {why}; write PEM files that match") from error


def _in_memory(opened: ExitStack, content: str) -> str:
    file = opened.enter_context(os.fdopen(os.memfd_create("pem"), "wb"))
    file.write(content.encode("utf-8", "surrogateescape"))
    file.flush()
    return f"/proc/self/fd/{file.fileno()}"


def _set_clients(context: ssl.SSLContext, section: TlsSection) -> None:
    kind = section.client_auth_type or "NoClientCert"
    if kind in _UNVERIFIED:
        raise _Unusable(
            "Python's ssl cannot ask for certificates without verifying them, so "
            f"{kind} cannot be done; write RequireAndVerifyClientCert, VerifyClientCertIfGiven or NoClientCert",
            key="client_auth_type",
        )
    if kind not in _CLIENT_AUTH:
        raise _Unusable(f"unknown; write one of {', '.join(_CLIENT_AUTH)}", key="client_auth_type")
    verified = _CLIENT_AUTH[kind] is not ssl.CERT_NONE
    if verified and not section.client_ca:
        raise _Unusable(f"{kind} needs client_ca_file; write whose certificates to accept")
    if section.client_ca and not verified:
        raise _Unusable(
            f"client_ca_file has no effect with {kind}; "
            "add client_auth_type: RequireAndVerifyClientCert or leave it out"
        )
    if section.client_allowed_sans is not None and kind != "RequireAndVerifyClientCert":
        raise _Unusable(
            "client_allowed_sans needs RequireAndVerifyClientCert; "
            "write that as client_auth_type, or leave the names out"
        )
    context.verify_mode = _CLIENT_AUTH[kind]
    if section.client_ca:
        try:
            context.load_verify_locations(cadata=section.client_ca.encode("ascii", "replace").decode("ascii"))
        except (ssl.SSLError, ValueError) as error:
            why = getattr(error, "reason", None) or error
            raise _Unusable(f"client_ca_file cannot be used: {why}; write PEM certificates") from error


def _set_versions(context: ssl.SSLContext, section: TlsSection) -> None:
    lowest, highest = section.min_version or "TLS12", section.max_version or "TLS13"
    for name, version in (("min_version", lowest), ("max_version", highest)):
        if version not in _VERSIONS:
            why = "is not served any more, it is broken" if version in _OLD_VERSIONS else "is no TLS version"
            raise _Unusable(f"{version} {why}; write TLS12 or TLS13", key=name)
    if _VERSIONS[lowest] > _VERSIONS[highest]:
        raise _Unusable("min_version is above max_version; swap them")
    context.minimum_version, context.maximum_version = _VERSIONS[lowest], _VERSIONS[highest]


def _set_ciphers(context: ssl.SSLContext, section: TlsSection) -> None:
    if section.prefer_server_cipher_suites is False:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    else:
        context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    if not section.cipher_suites:
        return
    key = "cipher_suites"
    for name in section.cipher_suites:
        if name not in _TLS12_SUITES and name not in _TLS13_SUITES:
            raise _Unusable(f"{name!r} is unknown or insecure; write names of Go's tls.CipherSuites()", key)
    # As in Go, TLS 1.3 cipher suites are accepted but can't be restricted.
    wanted = [_TLS12_SUITES[name] for name in section.cipher_suites if name in _TLS12_SUITES]
    if not wanted:
        if context.maximum_version is not ssl.TLSVersion.TLSv1_3:
            raise _Unusable("none is of TLS 1.2, and max_version is TLS12; add one", key)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return
    try:
        context.set_ciphers(":".join(wanted))
    except ssl.SSLError as error:
        raise _Unusable(f"this host's OpenSSL takes none of them: {error.reason}; write others", key) from error
    missing = set(wanted) - {cipher["name"] for cipher in context.get_ciphers()}
    if missing:
        raise _Unusable(f"this host's OpenSSL has no {', '.join(sorted(missing))}; leave them out", key)


def _set_curve(context: ssl.SSLContext, section: TlsSection) -> None:
    names = section.curve_preferences or ()
    key = "curve_preferences"
    for name in names:
        if name not in _CURVES:
            raise _Unusable(f"{name!r} is unknown; write one of {', '.join(_CURVES)}", key)
    if len(names) > 1:
        raise _Unusable("Python's ssl can set one curve, no order of several; keep one, or leave the key out", key)
    for name in names:
        try:
            context.set_ecdh_curve(_CURVES[name])
        except (ValueError, ssl.SSLError) as error:  # X25519 before Python 3.11, and with Debian 12's
            raise _Unusable(f"Python's ssl cannot set {name} on this host; write another curve", key) from error
