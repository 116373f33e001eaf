"""Maintenance of many hosts as silences of an Alertmanager (API v2)."""

import getpass
import json
import platform
import re
from collections.abc import Collection, Sequence
from datetime import datetime, timezone
from http.client import OK
from typing import Any, Final
from urllib.parse import quote

from gpu_triage.cli.fleet.prometheus import HttpConfig, HttpServer
from gpu_triage.documents import printable, quoted
from gpu_triage.errors import ConfigError, PrometheusUnavailable
from gpu_triage.judge.report.report import PlannedWork
from gpu_triage.options.values import parse_datetime
from gpu_triage.read.host.maintenance import COMMAND

EXAMPLE: Final = "'instance=~\"gpu-0[1-4].*\"'"
_MARK: Final = "gpu-triage maintenance: "  # how the comments of this program's silences begin
_OURS: Final = (
    {"name": "alertname", "value": "Gpu.+", "isRegex": True, "isEqual": True},
    # It fires always: a service outside pages if it stops.
    {"name": "alertname", "value": "GpuTriageWatchdog", "isRegex": False, "isEqual": False},
)
_STILL: Final = "Alerts without these labels still fire: those about many hosts and jobs have no instance."
_MATCHER: Final = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)(=~|!=|!~|=)"?([^"\n]+)"?')
_SIGNS: Final = {(False, True): "=", (True, True): "=~", (False, False): "!=", (True, False): "!~"}
_LONGEST_SHOWN: Final = 200

Matcher = dict[str, Any]  # as the API has it


def parse_matcher(text: str) -> Matcher:
    """Parse a matcher as amtool takes it; the value may be in quotes. Raises ValueError."""
    found = _MATCHER.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{quoted(text)} is no matcher; write one such as {EXAMPLE}")
    return {"name": found[1], "value": found[3], "isRegex": "~" in found[2], "isEqual": "!" not in found[2]}


class Silences(HttpServer):
    """Silences of our alerts with these labels. Raises PrometheusUnavailable if the server responds otherwise."""

    def __init__(self, url: str, config: HttpConfig, timeout_seconds: float, matchers: Sequence[Matcher]) -> None:
        super().__init__(url, config, timeout_seconds, "--alertmanager")
        self._words = _words(matchers)
        self._matchers = matchers

    def begin(self, until: datetime, reason: str) -> str:
        """Silence them until then, and no longer. Raises ConfigError without a selection of hosts, as `end` does."""
        self._refuse_all()
        earlier = self._found()
        silence = {
            "matchers": [*self._matchers, *_OURS],
            "startsAt": datetime.now(timezone.utc).isoformat(),
            "endsAt": until.isoformat(),
            "createdBy": f"{getpass.getuser()}@{platform.node()}",
            "comment": _MARK + reason,
        }
        self._answer("POST", "/api/v2/silences", json.dumps(silence).encode(), "application/json")
        self._expire(earlier)
        return f"silenced {PlannedWork(until.timestamp(), COMMAND, reason)}: {self._words}\n{_STILL}"

    def end(self) -> str:
        """End those with exactly these matchers."""
        self._refuse_all()
        return self._expire(self._found())

    def listed(self) -> list[str]:
        """Those of this program that have not ended, with these matchers if there are any."""
        return [*self._found().values()]

    def _expire(self, silences: Collection[str]) -> str:
        for silence in silences:
            self._answer("DELETE", f"/api/v2/silence/{quote(silence, safe='')}")
        return f"ended: {len(silences)} silence{'s' * (len(silences) != 1)}"

    def _found(self) -> dict[str, str]:
        """The words about each, by ID."""
        found = {}
        silences = self._answer("GET", "/api/v2/silences")
        try:
            for each in silences:
                words, comment = _words(each["matchers"]), printable(each["comment"])
                ours = comment.startswith(_MARK) and each["status"]["state"] != "expired"
                if ours and self._words in ("", words):
                    ends = parse_datetime(each["endsAt"]).timestamp()
                    planned = PlannedWork(ends, COMMAND, comment.removeprefix(_MARK))
                    found[str(each["id"])] = f"silenced {planned} ({printable(each['createdBy'])}): {words}"
        except (AttributeError, LookupError, TypeError, ValueError) as error:
            raise self._junk() from error
        return found

    def _refuse_all(self) -> None:
        if not any(each["isEqual"] for each in self._matchers):
            raise ConfigError(f"--alertmanager: select hosts with --match, such as {EXAMPLE}")

    def _answer(self, *request: Any) -> Any:
        status, answer = self.send(*request)
        try:
            document = json.loads(answer or b"null")
        except (ValueError, RecursionError) as error:
            raise self._junk() from error
        if status != OK:
            what = document if isinstance(document, str) else f"status {status}"
            raise PrometheusUnavailable(f"{self.url} rejects the request: {printable(what)[:_LONGEST_SHOWN]}")
        return document

    def _junk(self) -> PrometheusUnavailable:
        return PrometheusUnavailable(f"{self.url} does not answer as Alertmanager's API v2; is it the URL of one?")


def _words(matchers: Sequence[Matcher]) -> str:
    """Without those of our alerts: ``cluster="east", instance=~"gpu-0[1-4].*"``."""
    others = (each for each in matchers if each not in _OURS)
    shown = (f"{each['name']}{_SIGNS[each['isRegex'], each['isEqual']]}{json.dumps(each['value'])}" for each in others)
    return printable(", ".join(sorted(shown)))
