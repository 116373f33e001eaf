"""Simulated hosts with incidents, and what an exporter on them says of incidents and keeps on disk."""

import json
import logging
from pathlib import Path
from typing import Any

from tests.rig import Rig, only, scenario_with

from gpu_triage.machine import CallBlocked
from gpu_triage.options.config import Config
from gpu_triage.sampler.lanes import InlineLane
from gpu_triage_simulator import Scenario

FILE = "incidents.json"


def host(tmp_path: Path, *events: str) -> Scenario:
    return scenario_with(tmp_path, "idle-downshift", *events)


def event(at: int, effect: str, gpu: int = 0, until: int | None = None) -> str:
    ends = "" if until is None else f"until = {until}\n"
    return f"at = {at}\n{ends}gpu = {gpu}\neffect = {{ {effect} }}"


def xid(at: int, code: int, gpu: int = 0, more: str = "") -> str:
    return event(at, f'kind = "xid", code = {code}{more}', gpu)


def incidents(running: Rig, by: str = "board", days: str = "7") -> dict[tuple[str, str], float]:
    series = running.series("gpu_incidents_recent", by=by, days=days)
    return {(labels["gpu"], labels["kind"]): value for labels, value in series}


def resets(running: Rig) -> dict[str, float]:
    """Scenario second of each GPU's last reset."""
    series = running.series("gpu_reset_timestamp_seconds")
    began = running.clock.now().wall - running.elapsed
    return {labels["gpu"]: value - began for labels, value in series}


def errors(running: Rig) -> dict[str, float]:
    series = running.series("gpu_exporter_errors_total", collector="incidents")
    return {labels["error"]: value for labels, value in series}


def saved(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / FILE).read_text())
    return found


def stop(running: Rig) -> None:
    """End the exporter as its process ends it."""
    running.sampler.close(lambda condition: condition())
    running.sampler.save(lambda condition: condition())


def restarted(running: Rig, config: Config | None = None, down_seconds: float = 0.0) -> Rig:
    """The exporter stopped and, after so many seconds, started again on the same host."""
    stop(running)
    running.clock.advance(down_seconds)
    again = Rig(running.simulated, running.clock, config or running.config)
    again.elapsed = running.elapsed + down_seconds
    return again


def fields_of(record: logging.LogRecord) -> dict[str, Any]:
    found: dict[str, Any] = record.__dict__["fields"]
    return found


def watching(**options: Any) -> Config:
    """An exporter that reads what incidents come from, and little else."""
    return only("power", "ecc", "recovery", "memory_repair", "identity", "access", **options)


COARSE = watching(sample_fast_seconds=60.0, sample_medium_seconds=60.0)


class HangingLane(InlineLane):
    """A lane whose jobs never come back, as on a file system that hangs."""

    def submit(self, job: object, *, queued: bool = False) -> None:
        del job
        super().submit(self._hang, queued=queued)

    @staticmethod
    def _hang() -> None:
        raise CallBlocked(float("inf"))


def on_a_hanging_disk(running: Rig) -> Rig:
    """Another exporter on the host, whose state directory does not answer."""

    def make_lane(name: str) -> InlineLane:
        return (HangingLane if name == "incidents" else InlineLane)(running.clock, name)

    another = Rig(running.simulated, running.clock, running.config, make_lane=make_lane)
    another.elapsed = running.elapsed
    return another
