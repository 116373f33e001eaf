"""Maintenance of many hosts as silences of an Alertmanager (API v2)."""

import getpass
import http.client
import json
import platform
import re
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any, Final, NamedTuple
from urllib.parse import quote

from gpu_triage.cli.fleet.prometheus import HttpServer
from gpu_triage.documents import printable, quoted
from gpu_triage.errors import PrometheusUnavailable
from gpu_triage.options.values import parse_datetime

_MARK: Final = "gpu-triage maintenance: "
"""The begin of the comment, by which the silences of this program are recognized."""
_ALERTS: Final = {"name": "alertname", "value": "Gpu.+", "isRegex": True, "isEqual": True}
_MATCHER: Final = re.compile(r"\s*([a-zA-Z_][a-zA-Z0-9_]*)\s*(=~|!=|!~|=)\s*(.*?)\s*", re.DOTALL)
_OTHER_SHAPE: Final = (AttributeError, LookupError, TypeError, ValueError)
_LONGEST_SHOWN: Final = 200


class Matcher(NamedTuple):
    """A matcher of Alertmanager: ``instance=~"gpu-0[1-4].*"``."""

    name: str
    value: str
    is_regex: bool
    is_equal: bool

    def __str__(self) -> str:
        sign = ("=" if self.is_equal else "!") + ("~" if self.is_regex else "" if self.is_equal else "=")
        return printable(f"{self.name}{sign}{json.dumps(self.value, ensure_ascii=False)}")

    @property
    def document(self) -> dict[str, Any]:
        return {"name": self.name, "value": self.value, "isRegex": self.is_regex, "isEqual": self.is_equal}


def parse_matcher(text: str) -> Matcher:
    """Parse a matcher as amtool takes it; the value may be in quotes. Raises ValueError."""
    found = _MATCHER.fullmatch(text)
    if found is None or not (value := found[3].strip('"')):
        raise ValueError(f"{quoted(text)} is no matcher; write one such as 'instance=~\"gpu-0[1-4].*\"'")
    return Matcher(found[1], value, "~" in found[2], not found[2].startswith("!"))


class Silence(NamedTuple):
    """A silence that this program made; `until` in Unix seconds."""

    id: str
    matchers: tuple[Matcher, ...]  # without that of the alerts' names
    until: float
    reason: str
    by: str


class Silences(HttpServer):
    """The silences of an Alertmanager; raises PrometheusUnavailable if it does not respond as expected."""

    def listed(self) -> list[Silence]:
        """Those of this program that have not ended, the first to end first."""
        found = self._answer(*self.send("GET", "/api/v2/silences"))
        try:
            ours = (each for each in found if str(each["comment"]).startswith(_MARK))
            return sorted((_silence(each) for each in ours if each["status"]["state"] != "expired"), key=_end)
        except _OTHER_SHAPE as error:
            raise self._junk() from error

    def make(self, matchers: Sequence[Matcher], until: datetime, reason: str) -> str:
        """Silence our alerts with these labels; returns the ID."""
        document = {
            "matchers": [*(each.document for each in matchers), _ALERTS],
            "startsAt": datetime.now(timezone.utc).isoformat(),
            "endsAt": until.isoformat(),
            "createdBy": f"{getpass.getuser()}@{platform.node()}",
            "comment": _MARK + reason,
        }
        answer = self._answer(*self.send("POST", "/api/v2/silences", json.dumps(document).encode(), "application/json"))
        try:
            return str(answer["silenceID"])
        except _OTHER_SHAPE as error:
            raise self._junk() from error

    def end(self, silence: Silence) -> None:
        status, answer = self.send("DELETE", f"/api/v2/silence/{quote(silence.id, safe='')}")
        if status != http.client.OK:
            self._answer(status, answer)

    def _answer(self, status: int, answer: bytes) -> Any:
        try:
            document = json.loads(answer)
        except (ValueError, RecursionError) as error:
            raise self._junk() from error
        if status != http.client.OK:
            what = document if isinstance(document, str) else f"status {status}"
            raise PrometheusUnavailable(f"{self.url} rejects the request: {printable(what)[:_LONGEST_SHOWN]}")
        return document

    def _junk(self) -> PrometheusUnavailable:
        return PrometheusUnavailable(f"{self.url} does not answer as Alertmanager's API v2; is it the URL of one?")


def _silence(found: dict[str, Any]) -> Silence:
    matchers = [
        Matcher(str(each["name"]), str(each["value"]), each["isRegex"] is True, each.get("isEqual") is not False)
        for each in found["matchers"]
        if each["name"] != _ALERTS["name"]
    ]
    until, comment = parse_datetime(found["endsAt"]).timestamp(), printable(str(found["comment"]))
    by = printable(str(found["createdBy"]))
    return Silence(str(found["id"]), tuple(sorted(matchers)), until, comment.removeprefix(_MARK), by)


def _end(silence: Silence) -> float:
    return silence.until
