"""One HTTP answer, and how it is handed to the server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from dataclasses import dataclass
from typing import Any

Message = MutableMapping[str, Any]
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

Headers = tuple[tuple[bytes, bytes], ...]


@dataclass(frozen=True, slots=True)
class Answer:
    """One HTTP answer, whole.

    Attributes:
        status: HTTP status code.
        body: as it goes over the wire; for HEAD the server leaves it out and keeps its length.
        content_type: media type with its charset.
        headers: further headers, names in lower case.
    """

    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"
    headers: Headers = ()

    @property
    def all_headers(self) -> list[tuple[bytes, bytes]]:
        """Every header that goes out, those that each answer carries first."""
        return [
            (b"content-type", self.content_type.encode("latin-1")),
            (b"content-length", str(len(self.body)).encode("ascii")),
            (b"x-content-type-options", b"nosniff"),
            (b"cache-control", b"no-store"),
            *self.headers,
        ]


def text(status: int, message: str, headers: Headers = ()) -> Answer:
    """A short plain text answer."""
    return Answer(status, f"{message}\n".encode("utf-8", "replace"), headers=headers)


async def deliver(answer: Answer, send: Send) -> None:
    """Send an answer; returns once the client took all of it, or went away."""
    await send({"type": "http.response.start", "status": answer.status, "headers": answer.all_headers})
    await send({"type": "http.response.body", "body": answer.body, "more_body": True})
    # uvicorn waits for a full write buffer to drain before a send, not after: the empty end makes it wait, so
    # that an answer which the client does not read still counts as being answered.
    await send({"type": "http.response.body", "body": b"", "more_body": False})
