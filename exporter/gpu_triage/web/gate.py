"""What stands before the application: passwords where they are asked for, and the operator's headers on each answer."""

from __future__ import annotations

import asyncio
import base64
import binascii
import logging
from typing import TYPE_CHECKING

from gpu_triage.web.answer import Headers, Message, Receive, Scope, Send, deliver, text
from gpu_triage.web.passwords import Credentials, PasswordChecks, TooManyChecks

if TYPE_CHECKING:
    from gpu_triage.web.app import WebApp
    from gpu_triage.web.security import SecuritySource

_CHALLENGE: Headers = ((b"www-authenticate", b'Basic realm="gpu-triage", charset="UTF-8"'),)
_RETRY_AFTER_SECONDS = b"1"

logger = logging.getLogger(__name__)


class Gate:
    """An ASGI application that lets through to another who may pass; every path is guarded alike.

    Args:
        app: what answers those let through.
        security: who may pass, asked at each request.
        checks: how passwords are checked.
    """

    def __init__(self, app: WebApp, security: SecuritySource, checks: PasswordChecks) -> None:
        self._app = app
        self._security = security
        self._checks = checks

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request, or say why not."""
        config = self._security.current.config
        if config.headers:
            send = _with_headers(send, config.headers)
        given = _credentials(scope["headers"])
        try:
            if config.users and not (given and await self._checks.right(config.users, given, _address(scope))):
                await deliver(text(401, "unauthorized", _CHALLENGE), send)
                return
        except TooManyChecks:
            await deliver(text(503, "too many passwords to check", ((b"retry-after", _RETRY_AFTER_SECONDS),)), send)
            return
        except asyncio.CancelledError:
            # Only the server's end cancels, and the client is gone by then; uvicorn would log a failure.
            logger.debug("a check was given up at the end")
            return
        await self._app(scope, receive, send)


def _credentials(headers: list[tuple[bytes, bytes]]) -> Credentials | None:
    given = [value for name, value in headers if name == b"authorization"]
    scheme, _, token = given[0].partition(b" ") if len(given) == 1 else (b"", b"", b"")
    if scheme.lower() != b"basic":
        return None
    try:
        user, colon, password = base64.b64decode(token.strip(), validate=True).partition(b":")
    except binascii.Error:
        return None
    return Credentials(user, password) if colon else None


def _address(scope: Scope) -> str:
    client = scope.get("client")
    return str(client[0]) if client else ""


def _with_headers(send: Send, headers: Headers) -> Send:
    names = {name for name, _ in headers}

    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            kept = [(name, value) for name, value in message["headers"] if name not in names]
            message = {**message, "headers": [*kept, *headers]}
        await send(message)

    return sending
