"""The log of this program as it is written, with its bounds."""

import io
import json
from typing import Any

from gpu_triage.log import configure


class Log:
    """What is logged from now on, until its lines are looked at."""

    def __init__(self, level: str = "info") -> None:
        self._stream = io.StringIO()
        configure(level, "json", self._stream)

    def lines(self, message: str | None = None) -> list[dict[str, Any]]:
        """Every line, or those with this message; lines that were left out are summed up in the last ones."""
        configure("critical", "json", io.StringIO())
        lines = [json.loads(line) for line in self._stream.getvalue().splitlines()]
        return [line for line in lines if message in (None, line["msg"])]
