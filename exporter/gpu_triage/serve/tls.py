"""TLS: settings with Go's names as an ssl.SSLContext, and TLS between a TCP transport and a `Connection`.

The latter uses OpenSSL's memory BIOs: when a handshake fails, asyncio's own TLS closes the socket before sending the
alert, so the client doesn't learn the reason; it can't count connections before that, and takes 256 KiB for each.
"""

import asyncio
import ipaddress
import logging
import os
import ssl
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from typing import Any, NoReturn, cast

from gpu_triage.documents import Place, raised_as
from gpu_triage.errors import ConfigError
from gpu_triage.log import QUIET_SECONDS, repeated
from gpu_triage.serve.config_file import TlsSection
from gpu_triage.serve.connection import Connection

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


def server_context(section: TlsSection, where: Place) -> ssl.SSLContext:
    """Create the server's SSL context. Raises ConfigError for a missing, invalid or unsupported key below `where`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    # Client-initiated renegotiation costs the server more than the client; OpenSSL 3 already rejects it by default.
    context.options |= ssl.OP_NO_RENEGOTIATION
    # ALPN: clients that support HTTP/2 learn that this server doesn't.
    context.set_alpn_protocols(["http/1.1"])
    with raised_as(ConfigError):
        for setting in (_set_certificate, _set_clients, _set_versions, _set_ciphers, _set_curve):
            setting(context, section, where)
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


def _set_certificate(context: ssl.SSLContext, section: TlsSection, where: Place) -> None:
    for name, content in (("cert", section.cert), ("key", section.key)):
        if not content:
            raise where.error(f"write {name}_file (or {name}); TLS needs both cert_file and key_file")

    def refuse() -> NoReturn:
        raise where.error("the key is encrypted; write one that is not, readable by this user only")

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
            raise where.error(f"certificate and key cannot be used: {why}; write PEM files that match") from error


def _in_memory(opened: ExitStack, content: str) -> str:
    file = opened.enter_context(os.fdopen(os.memfd_create("pem"), "wb"))
    file.write(content.encode("utf-8", "surrogateescape"))
    file.flush()
    return f"/proc/self/fd/{file.fileno()}"


def _set_clients(context: ssl.SSLContext, section: TlsSection, where: Place) -> None:
    kind = section.client_auth_type or "NoClientCert"
    if kind in _UNVERIFIED:
        raise where.at("client_auth_type").error(
            "Python's ssl cannot ask for certificates without verifying them, so "
            f"{kind} cannot be done; write RequireAndVerifyClientCert, VerifyClientCertIfGiven or NoClientCert"
        )
    if kind not in _CLIENT_AUTH:
        raise where.at("client_auth_type").error(f"unknown; write one of {', '.join(_CLIENT_AUTH)}")
    verified = _CLIENT_AUTH[kind] is not ssl.CERT_NONE
    if verified and not section.client_ca:
        raise where.error(f"{kind} needs client_ca_file; write whose certificates to accept")
    if section.client_ca and not verified:
        raise where.error(
            f"client_ca_file has no effect with {kind}; "
            "add client_auth_type: RequireAndVerifyClientCert or leave it out"
        )
    if section.client_allowed_sans is not None and kind != "RequireAndVerifyClientCert":
        raise where.error(
            "client_allowed_sans needs RequireAndVerifyClientCert; "
            "write that as client_auth_type, or leave the names out"
        )
    context.verify_mode = _CLIENT_AUTH[kind]
    if section.client_ca:
        try:
            context.load_verify_locations(cadata=section.client_ca.encode("ascii", "replace").decode("ascii"))
        except (ssl.SSLError, ValueError) as error:
            why = getattr(error, "reason", None) or error
            raise where.error(f"client_ca_file cannot be used: {why}; write PEM certificates") from error


def _set_versions(context: ssl.SSLContext, section: TlsSection, where: Place) -> None:
    lowest, highest = section.min_version or "TLS12", section.max_version or "TLS13"
    for name, version in (("min_version", lowest), ("max_version", highest)):
        if version not in _VERSIONS:
            why = "is not served any more, it is broken" if version in _OLD_VERSIONS else "is no TLS version"
            raise where.at(name).error(f"{version} {why}; write TLS12 or TLS13")
    if _VERSIONS[lowest] > _VERSIONS[highest]:
        raise where.error("min_version is above max_version; swap them")
    context.minimum_version, context.maximum_version = _VERSIONS[lowest], _VERSIONS[highest]


def _set_ciphers(context: ssl.SSLContext, section: TlsSection, where: Place) -> None:
    if section.prefer_server_cipher_suites is False:
        context.options &= ~ssl.OP_CIPHER_SERVER_PREFERENCE
    else:
        context.options |= ssl.OP_CIPHER_SERVER_PREFERENCE
    if not section.cipher_suites:
        return
    where = where.at("cipher_suites")
    for name in section.cipher_suites:
        if name not in _TLS12_SUITES and name not in _TLS13_SUITES:
            raise where.error(f"{name!r} is unknown or insecure; write names of Go's tls.CipherSuites()")
    # As in Go, TLS 1.3 cipher suites are accepted but can't be restricted.
    wanted = [_TLS12_SUITES[name] for name in section.cipher_suites if name in _TLS12_SUITES]
    if not wanted:
        if context.maximum_version is not ssl.TLSVersion.TLSv1_3:
            raise where.error("none is of TLS 1.2, and max_version is TLS12; add one")
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        return
    try:
        context.set_ciphers(":".join(wanted))
    except ssl.SSLError as error:
        raise where.error(f"this host's OpenSSL takes none of them: {error.reason}; write others") from error
    missing = set(wanted) - {cipher["name"] for cipher in context.get_ciphers()}
    if missing:
        raise where.error(f"this host's OpenSSL has no {', '.join(sorted(missing))}; leave them out")


def _set_curve(context: ssl.SSLContext, section: TlsSection, where: Place) -> None:
    names = section.curve_preferences or ()
    where = where.at("curve_preferences")
    for name in names:
        if name not in _CURVES:
            raise where.error(f"{name!r} is unknown; write one of {', '.join(_CURVES)}")
    if len(names) > 1:
        raise where.error("Python's ssl can set one curve, no order of several; keep one, or leave the key out")
    for name in names:
        try:
            context.set_ecdh_curve(_CURVES[name])
        except (ValueError, ssl.SSLError) as error:  # X25519 before Python 3.11, and with Debian 12's
            raise where.error(f"Python's ssl cannot set {name} on this host; write another curve") from error


_CHUNK_BYTES = 64 * 1024
"""Encrypted at a time: a stalled client holds only one chunk, and shares the rest of its page with others."""

_PLAIN_HTTP = (
    b"HTTP/1.1 400 Bad Request\r\ncontent-type: text/plain; charset=utf-8\r\nconnection: close\r\n\r\n"
    b"this port speaks HTTPS: write https:// in place of http://\n"
)

_NOT_ALLOWED = "the client's certificate has none of the names in client_allowed_sans"
_UNTRUSTED = "the client does not accept this server's certificate; give it the ca_file of the authority that signed it"
_VERSION = "the client offers no TLS version from min_version to max_version"
_CIPHER = "client and server have no cipher suite or curve in common; see cipher_suites and curve_preferences"
_CAUSES = {
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "the client sent no certificate; give it a cert_file and key_file",
    "HTTP_REQUEST": "the client speaks plain HTTP; give it the scheme https",
    "UNSUPPORTED_PROTOCOL": _VERSION,
    "VERSION_TOO_LOW": _VERSION,
    "NO_SHARED_CIPHER": _CIPHER,
    "NO_SUITABLE_KEY_SHARE": _CIPHER,
    "NO_SHARED_GROUP": _CIPHER,
    "TLSV1_ALERT_UNKNOWN_CA": _UNTRUSTED,
    "SSLV3_ALERT_BAD_CERTIFICATE": _UNTRUSTED,
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": _UNTRUSTED,
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": _UNTRUSTED,
}
"""By OpenSSL's reason; other failures, such as data that isn't TLS, don't point to a configuration error."""
logger = logging.getLogger(__name__)


class TlsTransport(asyncio.Transport, asyncio.Protocol):
    """The protocol of TCP, and transport of `connection`, which enforces timeouts, also that of the handshake."""

    def __init__(self, connection: Connection, context: ssl.SSLContext, section: TlsSection) -> None:
        super().__init__()
        self._connection = connection
        self._section = section
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._lower: asyncio.Transport
        self._established = False
        self._receives = True
        self._paused = False
        self._queue: deque[memoryview] = deque()
        self._end: Callable[[], None] | None = None

    # Methods of the TCP transport's protocol.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._lower = cast("asyncio.Transport", transport)
        self._connection.connection_made(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Free OpenSSL's buffers now instead of waiting for the garbage collector."""
        self._queue.clear()
        del self._tls, self._incoming, self._outgoing
        self._connection.connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if not self._receives:
            return
        self._incoming.write(data)
        try:
            if not self._established:
                self._shake_hands()
            while not self.is_closing() and self._receives:
                if plain := self._tls.read(_CHUNK_BYTES):
                    self._connection.data_received(plain)
                elif not self.eof_received():
                    self.close()
        except ssl.SSLWantReadError:
            self._send_encrypted()
        except ssl.SSLError as error:
            self._fail(error)

    def eof_received(self) -> bool:
        """Whether to keep the connection half-open; the connection decides."""
        self._receives = False
        return self._connection.eof_received()

    def pause_writing(self) -> None:
        """Stop encrypting, since the client isn't reading."""
        self._paused = True
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        """Continue encrypting; the client has read everything sent so far."""
        self._paused = False
        self._encrypt()
        if not self._paused:
            self._connection.resume_writing()

    # Methods of the connection's transport.

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Encrypt and send, at the client's reading speed."""
        self._queue.append(memoryview(data))
        self._encrypt()

    def write_eof(self) -> None:
        """Half-close after everything is sent, and ignore further input, which TLS could no longer answer."""
        self._receives = False
        self._end = self._lower.write_eof
        self._encrypt()

    def close(self) -> None:
        self._end = self._lower.close
        self._encrypt()

    def abort(self) -> None:
        self._lower.abort()

    def is_closing(self) -> bool:
        return self._lower.is_closing() or self._end == self._lower.close

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._lower.set_write_buffer_limits(high, low)

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._lower.get_extra_info(name, default)

    def _shake_hands(self) -> None:
        self._tls.do_handshake()
        self._send_encrypted()
        self._established = True
        if admits(self._section, self._tls.getpeercert()):
            self._connection.handshake_done()
        else:
            self._refuse(_NOT_ALLOWED)

    def _fail(self, error: ssl.SSLError) -> None:
        logger.debug("TLS failed: %s", error)
        if error.reason == "HTTP_REQUEST":
            self._lower.write(_PLAIN_HTTP)
        if isinstance(error, ssl.SSLCertVerificationError):
            self._refuse(f"the client's certificate is refused: {error.verify_message}; see client_ca_file")
        else:
            self._refuse(_CAUSES.get(error.reason or ""))

    def _refuse(self, cause: str | None) -> None:
        """Fail a handshake; `cause` is a configuration error to log, None if only the client is at fault."""
        if cause is not None:
            facts = repeated(cause, QUIET_SECONDS, cause=cause, client=self._connection.address)
            logger.warning("TLS connection refused", extra=facts)
        self._connection.linger()  # sends the alert first

    def _encrypt(self) -> None:
        if self._lower.is_closing():
            return
        try:
            while self._queue and not self._paused:
                data = self._queue.popleft()
                if len(data) > _CHUNK_BYTES:
                    self._queue.appendleft(data[_CHUNK_BYTES:])
                self._tls.write(data[:_CHUNK_BYTES])
                self._send_encrypted()
        except ssl.SSLError:
            self._lower.abort()
            return
        if self._end is not None and not self._queue:
            with suppress(ssl.SSLError):
                self._tls.unwrap()  # sends close_notify, so that the client can detect a complete response
            self._send_encrypted()
            self._end()
            self._end = None

    def _send_encrypted(self) -> None:
        if data := self._outgoing.read():
            self._lower.write(data)
