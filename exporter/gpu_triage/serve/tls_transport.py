"""TLS between a TCP transport and a `Connection`, using OpenSSL's memory BIOs.

When a handshake fails, asyncio's own TLS closes the socket before sending the alert, so the client doesn't learn the
reason. It also can't count connections before the handshake, and allocates 256 KiB for each.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Any, cast

from gpu_triage.log import QUIET_SECONDS, repeated
from gpu_triage.serve.connection import Connection
from gpu_triage.serve.tls import admits
from gpu_triage.serve.tls_section import TlsSection

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
    """The protocol of the TCP transport, and at the same time the transport of a connection.

    Args:
        connection: receives the decrypted bytes; enforces timeouts, including that of the handshake.
    """

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
            peer = self.get_extra_info("peername")
            client = str(peer[0]) if isinstance(peer, tuple) else ""
            logger.warning("TLS connection refused", extra=repeated(cause, QUIET_SECONDS, cause=cause, client=client))
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
