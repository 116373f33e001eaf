"""Maintenance of many hosts as silences of an Alertmanager (API v2)."""

import getpass
import json
import platform
import re
from collections.abc import Sequence
from datetime import datetime, timezone
from typing import Any, Final
from urllib.parse import quote

from gpu_triage.cli.fleet.prometheus import HttpConfig, HttpServer
from gpu_triage.documents import printable, quoted
from gpu_triage.errors import ConfigError, PrometheusUnavailable
from gpu_triage.judge.report.report import PlannedWork
from gpu_triage.options.values import parse_datetime
from gpu_triage.read.host.maintenance import COMMAND

_MARK: Final = "gpu-triage maintenance: "
"""How the comments of this program's silences begin."""
_EXAMPLE: Final = "'instance=~\"gpu-0[1-4].*\"'"
_OURS: Final = {"name": "alertname", "value": "Gpu.+", "isRegex": True, "isEqual": True}
_MATCHER: Final = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)(=~|!=|!~|=)"?([^"\n]+)"?')
_SIGNS: Final = {(False, True): "=", (True, True): "=~", (False, False): "!=", (True, False): "!~"}
_OTHER_SHAPE: Final = (AttributeError, LookupError, TypeError, ValueError, RecursionError)
_LONGEST_SHOWN: Final = 200

Matcher = dict[str, Any]  # as the API has it


def parse_matcher(text: str) -> Matcher:
    """Parse a matcher as amtool takes it; the value may be in quotes. Raises ValueError."""
    found = _MATCHER.fullmatch(text.strip())
    if found is None:
        raise ValueError(f"{quoted(text)} is no matcher; write one such as {_EXAMPLE}")
    return {"name": found[1], "value": found[3], "isRegex": "~" in found[2], "isEqual": "!" not in found[2]}


class Silences(HttpServer):
    """Silences of our alerts with these labels. Raises PrometheusUnavailable if the server responds otherwise."""

    def __init__(self, url: str, config: HttpConfig, timeout_seconds: float, matchers: Sequence[Matcher]) -> None:
        super().__init__(url, config, timeout_seconds, "--alertmanager")
        self._matchers = _words(matchers)
        self._document = [*matchers, _OURS]

    def begin(self, until: datetime, reason: str) -> str:
        """Silence them; returns what was done. Raises ConfigError without a selection of hosts."""
        self._refuse_all()
        silence = {
            "matchers": self._document,
            "startsAt": datetime.now(timezone.utc).isoformat(),
            "endsAt": until.isoformat(),
            "createdBy": f"{getpass.getuser()}@{platform.node()}",
            "comment": _MARK + reason,
        }
        self._answer("POST", "/api/v2/silences", json.dumps(silence).encode(), "application/json")
        return f"silenced {PlannedWork(until.timestamp(), COMMAND, reason)}: {self._matchers}"

    def end(self) -> str:
        """End those with exactly these matchers."""
        self._refuse_all()
        ended = self._own()
        for each in ended:
            self._answer("DELETE", f"/api/v2/silence/{quote(str(each['id']), safe='')}")
        return f"ended: {len(ended)} silence{'s' * (len(ended) != 1)}"

    def listed(self) -> list[str]:
        """Those of this program that have not ended, with these matchers if there are any."""
        try:
            return [
                f"silenced {PlannedWork(parse_datetime(each['endsAt']).timestamp(), COMMAND, _reason(each))}"
                f" ({printable(each['createdBy'])}): {_words(each['matchers'])}"
                for each in self._own()
            ]
        except _OTHER_SHAPE as error:
            raise self._junk() from error

    def _own(self) -> list[dict[str, Any]]:
        try:
            return [
                each
                for each in self._answer("GET", "/api/v2/silences")
                if each["comment"].startswith(_MARK) and each["status"]["state"] != "expired"
                if self._matchers in ("", _words(each["matchers"]))
            ]
        except _OTHER_SHAPE as error:
            raise self._junk() from error

    def _refuse_all(self) -> None:
        if not any(each["isEqual"] for each in self._document if each is not _OURS):
            raise ConfigError(f"--alertmanager: select hosts with --match, such as {_EXAMPLE}")

    def _answer(self, *request: Any) -> Any:
        status, answer = self.send(*request)
        document = None
        try:
            document = json.loads(answer or b"null")
        except _OTHER_SHAPE as error:
            raise self._junk() from error
        if status != 200:  # noqa: PLR2004 - OK
            what = document if isinstance(document, str) else f"status {status}"
            raise PrometheusUnavailable(f"{self.url} rejects the request: {printable(what)[:_LONGEST_SHOWN]}")
        return document

    def _junk(self) -> PrometheusUnavailable:
        return PrometheusUnavailable(f"{self.url} does not answer as Alertmanager's API v2; is it the URL of one?")


def _words(matchers: Sequence[Matcher]) -> str:
    """Without that of our alerts: ``instance=~"gpu-0[1-4].*", cluster="east"``."""
    shown = (
        f"{each['name']}{_SIGNS[each['isRegex'], each.get('isEqual', True)]}{json.dumps(each['value'])}"
        for each in matchers
        if each["name"] != _OURS["name"]
    )
    return printable(", ".join(sorted(shown)))


def _reason(silence: dict[str, Any]) -> str:
    return printable(silence["comment"].removeprefix(_MARK))
