"""Where the sampler's time goes: ``-m tests.bench.where SCENARIO`` prints CPU milliseconds a second by part, as JSON.

The whole path runs on a virtual clock and one thread, so threads, scrapes and the web server are not in it. The
stand-in driver's own time is taken off.
"""

from __future__ import annotations

import gc
import json
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.bench.floor import SETTLE_SECONDS, metered_standin
from tests.rig import Rig

import gpu_triage.sampler.gpu
import gpu_triage.sampler.host
from gpu_triage.options.config import Config
from gpu_triage.sampler.judging import JudgeRounds
from gpu_triage_simulator import VirtualClock, load_scenario, simulated_machine

MEASURED_SECONDS = 120
OPENMETRICS = "application/openmetrics-text"


def run(scenario: Path) -> dict[str, float]:
    """Milliseconds by part, the readers by subject."""
    clock = VirtualClock()
    with simulated_machine(load_scenario(scenario), clock=clock) as simulated:
        rig = Rig(simulated, clock, Config())
        rig.exposition.page(OPENMETRICS, (), gzipped=True)
        rig.run(SETTLE_SECONDS)
        gc.collect()
        gc.freeze()
        parts = _Parts(metered_standin())
        for _ in range(MEASURED_SECONDS):
            # Moving the clock lets the stand-in host move on, which a real one does by itself.
            clock.advance(1)
            parts.time("rounds", rig.sampler.step)
            parts.time("publication", rig.sampler.publish)
            parts.time("pages: encoding and compressing", rig.exposition.refresh)
            rig.exposition.page(OPENMETRICS, (), gzipped=True)
    return {name: seconds * 1000 / MEASURED_SECONDS for name, seconds in parts.own().items()}


class _Parts:
    """CPU seconds by part. Parts within others are taken off those."""

    def __init__(self, standin: list[float]) -> None:
        self._standin = standin
        self._spent: defaultdict[str, float] = defaultdict(float)
        self._readers: set[str] = set()
        modules: tuple[Any, ...] = (gpu_triage.sampler.gpu, gpu_triage.sampler.host)
        for module in modules:
            module.checked = self._timed("samples: rendering and checking", module.checked)
        judge = JudgeRounds._run
        JudgeRounds._run = self._timed("judge", judge)  # type: ignore[method-assign] # that is the point
        for kind in (gpu_triage.sampler.gpu.GpuJob, gpu_triage.sampler.host.HostJob):
            self._time_readers(kind)

    def time(self, name: str, part: Callable[[], Any]) -> None:
        self._timed(name, part)()

    def own(self) -> dict[str, float]:
        """Seconds of each part without those within it, the longest first."""
        own = dict(self._spent)
        readers = sum(own[name] for name in self._readers)
        own["rounds: all around the readers"] = own.pop("rounds") - readers - own["samples: rendering and checking"]
        own["publication"] -= own["judge"]
        return dict(sorted(own.items(), key=lambda item: -item[1]))

    def _timed(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            began, standin = time.thread_time(), self._standin[0]
            try:
                return function(*arguments, **named)
            finally:
                self._spent[name] += time.thread_time() - began - (self._standin[0] - standin)

        return run

    def _time_readers(self, kind: Any) -> None:
        run = kind._run

        def timed_run(job: Any, collector: Any, reader: Any, *rest: Any) -> Any:
            name = f"reading {collector.name}"
            self._readers.add(name)
            return run(job, collector, self._timed(name, reader), *rest)

        kind._run = timed_run


if __name__ == "__main__":
    sys.stdout.write(json.dumps(run(Path(sys.argv[1]))))
