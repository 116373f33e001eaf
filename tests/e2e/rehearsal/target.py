"""Many scrape targets behind one port, which answer or fail as a script says."""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tests.e2e.rehearsal.replay import STEP_SECONDS, Replay
from tests.listening import QuietHandler, QuietServer, listening

Minutes = float
QUIET = 'gpu_exporter_build_info{version="1"} 1\n'
"""All that a host publishes that only counts as one of many."""


@dataclass(frozen=True, slots=True)
class Host:
    """A target."""

    labels: Mapping[str, str]  # of the target, `instance` among them
    play: str = ""  # what it replays; "" for a host that is well and says little
    late: Minutes = 0.0  # how much later its replay begins
    down: Sequence[tuple[Minutes, Minutes]] = ()  # from minute to minute, when nobody answers
    # from minute to minute, when the exporter crashes soon after each start
    loops: tuple[Minutes, Minutes] | None = None

    def answers(self, minute: Minutes) -> bool:
        if any(begin <= minute < end for begin, end in self.down):
            return False
        if self.loops is None or not self.loops[0] <= minute < self.loops[1]:
            return True
        return _runs_between_crashes(minute - self.loops[0])


def _runs_between_crashes(minute: Minutes) -> bool:
    """A container that runs for half a minute; Kubernetes waits 10 s, 20 s, … 5 minutes before it starts it again."""
    at, wait = 0.0, 1 / 6
    while at <= minute:
        if minute < at + 0.5:
            return True
        at += 0.5 + wait
        wait = min(5.0, 2 * wait)
    return False


@dataclass(frozen=True, slots=True)
class Script:
    """What every host answers, and when."""

    hosts: Sequence[Host]  # each at the path of its number
    pace: float  # how many times faster
    origin: float  # Unix time of minute 0
    replays: Mapping[tuple[str, Minutes], Replay]  # pages by play and how late it begins

    def minute(self) -> Minutes:
        return max(0.0, (time.time() - self.origin) * self.pace / 60)

    def page(self, number: int) -> str | None:
        """What a scrape of a host finds now; None if nobody answers."""
        minute = self.minute()
        host = self.hosts[number]
        if not host.answers(minute):
            return None
        if not host.play:
            return QUIET
        step = int((minute - host.late) * 60 / STEP_SECONDS)
        return self.replays[host.play, host.late].page(max(0, step))

    def job(self, address: str) -> dict[str, Any]:
        configs = [
            {"targets": [address], "labels": {**host.labels, "__metrics_path__": f"/{number}"}}
            for number, host in enumerate(self.hosts)
        ]
        return {"job_name": "gpu-triage", "static_configs": configs}


@contextmanager
def serving(page: Callable[[int], str | None]) -> Iterator[str]:
    """Serve pages by number for the length of a ``with`` block; yields ``host:port``."""

    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"

        def respond(self) -> None:
            text = page(int(self.path.strip("/")))
            self.answer(200 if text else 503, (text or "").encode(), "text/plain; version=0.0.4")

    with listening(QuietServer(("127.0.0.1", 0), Handler)) as address:
        yield address
