"""HTTP/1.1 as this server is willing to read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import h11

if TYPE_CHECKING:
    from gpu_triage.web.crowd import Limits


class StrictConnection(h11.Connection):
    """h11's state machine that keeps a refusal for its owner rather than raising it, and bounds requests.

    Attributes:
        refusal: what is wrong with the client's bytes, and the HTTP status to answer; None.
        requests: heads read so far.
        method: of the request in progress, b"" where its head is not yet read.
    """

    def __init__(self, limits: Limits) -> None:
        super().__init__(h11.SERVER, max_incomplete_event_size=limits.head_bytes)
        self.refusal: h11.RemoteProtocolError | None = None
        self.requests = 0
        self.method = b""
        self._limits = limits

    def next_event(self) -> h11.Event | type[h11.NEED_DATA | h11.PAUSED]:
        """The next event of the client; after a refusal there are none."""
        if self.refusal is not None:
            return h11.NEED_DATA
        if self.our_state is h11.IDLE:
            self.method = b""
        try:
            event = super().next_event()
            if isinstance(event, h11.Request):
                self.requests += 1
                self.method = event.method
                self._judge(event)
        except h11.RemoteProtocolError as error:
            # uvicorn would log a warning and answer 400 whatever the cause; a hostile client must neither
            # fill the log nor be told the wrong thing.
            self.refusal = error
            return h11.NEED_DATA
        return event

    @property
    def unread_bytes(self) -> int:
        """Bytes received and not yet turned into events."""
        return len(self.trailing_data[0])

    def _judge(self, request: h11.Request) -> None:
        # h11 takes any two digits, and would answer HTTP/3 in HTTP/1.1.
        if not request.http_version.startswith(b"1."):
            raise h11.RemoteProtocolError("not HTTP/1", error_status_hint=505)
        # uvicorn decodes the target before anybody looks for its first slash: "%2fmetrics" would be a path.
        if not request.target.startswith(b"/"):
            raise h11.RemoteProtocolError("target is no path", error_status_hint=400)
        # h11 bounds a head only while it is incomplete; one that comes in a single read may be longer.
        size = len(request.target) + sum(len(name) + len(value) for name, value in request.headers)
        if size > self._limits.head_bytes:
            raise h11.RemoteProtocolError("head too long", error_status_hint=431)
        headers = dict(request.headers)
        if b"transfer-encoding" in headers:
            raise h11.RemoteProtocolError("body of undeclared length", error_status_hint=411)
        if int(headers.get(b"content-length", b"0")) > self._limits.body_bytes:
            raise h11.RemoteProtocolError("body too long", error_status_hint=413)
