"""The exporter's web server over a simulated host whose clock stands still: its status page at a scenario time."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from tests.guarded_server import run
from tests.rig import Rig

from gpu_triage.options.config import Config
from gpu_triage.serve.app import ExporterBackend
from gpu_triage.serve.server import WebServer
from gpu_triage_simulator import Scenario, VirtualClock, simulated_machine

WINDOW_SECONDS = 60.0
_SETTLING_SECONDS = 1.0
"""From the first step of a sampler on a virtual clock until everything has been read once."""


class StatusServer:
    """A served exporter."""

    def __init__(self, running: Rig) -> None:
        self.rig = running  # what is behind it
        self._front = ExporterBackend(running.sampler, running.judge, running.config, lambda: None)
        config = replace(running.config, web_listen_addresses=("127.0.0.1:0",))
        self.server = WebServer(self._front, config)  # what serves it
        self.url = self.server.bind()[0].rstrip("/") + "/"  # of its page, with a slash at its end

    def run(self, seconds: float) -> None:
        interval = self.rig.config.sample_fast_seconds
        for _ in range(round(seconds / interval)):
            self._round()
            self.rig.clock.advance(interval)
        self._round()

    def _round(self) -> None:
        self.rig.sampler.step()
        self.rig.sampler.publish()
        self._front.published()


@contextmanager
def status_server(
    scenario: Scenario,
    at_seconds: float = WINDOW_SECONDS + _SETTLING_SECONDS,
    *,
    config: Config | None = None,
    sampled_seconds: float = WINDOW_SECONDS,
) -> Iterator[StatusServer]:
    """A served exporter that has sampled a scenario until this time of it.

    Args:
        config: of the exporter; its defaults if None.
        sampled_seconds: for how long it has sampled; 0 for one that has not begun.
    """
    clock = VirtualClock()
    begin = max(0.0, at_seconds - sampled_seconds - _SETTLING_SECONDS)
    with simulated_machine(scenario, clock=clock, starting_at=begin, when_looked_at=True) as simulated:
        server = StatusServer(Rig(simulated, clock, config or Config(simulate=scenario.name)))
        with run(server.server):
            if sampled_seconds:
                server.run(at_seconds - begin)
            yield server
