"""Recorded nodes, around incidents and on healthy days, played through the rules for fleets with dcgm-exporter alone.

The recordings are of GWDG's GPU nodes (Zenodo 19052367, CC-BY-4.0), as tidy CSV, and no part of this repository. They
have a sample per 10 minutes, where a scrape brings one every minute: each is repeated until the next one, or until it
is missing there, so that windows of minutes and staleness work as they would live.
"""

import bz2
import csv
import math
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path

import pytest
from tests.conftest import NOT_PUBLIC, RequiresTool
from tests.gathered import for_each
from tests.promql.promtool import selector
from tests.rules.handwritten import Played, Series, play
from tests.rules.rulefile import REPOSITORY
from tests.rules.test_dcgm_faults import RULES, TAIL

FOLDER = Path(os.environ.get("GPU_TRIAGE_RECORDED_NODES", REPOSITORY.parent / "shared" / "data" / "real" / "gwdg"))
pytestmark = [
    pytest.mark.full,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not FOLDER.is_dir(), reason=f"{NOT_PUBLIC} {FOLDER}: set GPU_TRIAGE_RECORDED_NODES"),
]
MINUTES, SAMPLE_MINUTES = 12 * 60, 10
TOLD_WITHIN = {"GpuStraggler": 60}
"""Minutes, for what is not told within 15."""


@dataclass(frozen=True, slots=True)
class Told:
    """An alert that has to fire, about one GPU or the host, from a minute of the piece to another one."""

    alert: str
    gpu: str = ""
    onset: int = 0
    end: int = MINUTES - 1


@dataclass(frozen=True, slots=True)
class Piece:
    node: str
    begin: str
    told: tuple[Told, ...] = ()


PIECES = {
    "slow from 01:30": Piece("ggpu129", "2026-01-05 00:00", (Told("GpuStraggler", "3", 90),)),
    "slow, the others wait": Piece("ggpu129", "2026-01-06 06:00", (Told("GpuStraggler", "3", 20),)),
    "slow, then dead at 23:10": Piece(
        "ggpu129", "2026-01-07 12:00", (Told("GpuStraggler", "3", 0, 670), Told("GpuXidCritical", "3", 670))
    ),
    "dead, off at 09:20": Piece("ggpu129", "2026-01-09 00:00", (Told("GpuXidCritical", "3", 0, 560),)),
    "board at 12:20": Piece("ggpu142", "2025-09-08 06:00", (Told("GpuBoardLost", onset=380),)),
    "board at 16:10": Piece("ggpu149", "2025-06-11 10:00", (Told("GpuBoardLost", onset=370),)),
    "busy": Piece("ggpu142", "2025-09-05 00:00"),
    "idle": Piece("ggpu129", "2026-01-03 00:00"),
    "jobs' Xids, a reboot": Piece("ggpu149", "2025-06-06 02:00"),
    "after the repair": Piece("ggpu149", "2025-06-13 00:00"),
    "reboot, a gap": Piece("ggpu143", "2025-03-21 06:00"),
    "jobs come and go": Piece("ggpu143", "2025-03-15 00:00"),
}


@cache
def recorded(node: str) -> Mapping[str, Mapping[str, float]]:
    """Values by time of the series of dcgm-exporter, with the labels that it has."""
    found: dict[str, dict[str, float]] = {}
    [path] = FOLDER.glob(f"{node}_*.csv.bz2")
    with bz2.open(path, "rt", encoding="utf-8") as lines:
        for at, _, metric, value, gpu, device, uuid, job, instance, model, driver in csv.reader(lines):
            if metric.startswith("DCGM_"):
                labels = {"gpu": gpu, "UUID": uuid, "device": device, "modelName": model, "job": job}
                labels |= {"instance": instance, "DCGM_FI_DRIVER_VERSION": driver}
                found.setdefault(selector(metric, labels.items()), {})[at] = float(value)
    return found


def scraped(piece: Piece) -> Series:
    """The series, a value a minute."""
    begin = datetime.fromisoformat(piece.begin)
    times = [str(begin + timedelta(minutes=minute)) for minute in range(0, MINUTES, SAMPLE_MINUTES)]
    return {
        key: [value for at in times for value in [values.get(at, math.nan)] * SAMPLE_MINUTES]
        for key, values in recorded(piece.node).items()
        if not values.keys().isdisjoint(times)
    }


@pytest.fixture(scope="module")
def played(requires_tool: RequiresTool, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Played]:
    hosts = {name: scraped(piece) for name, piece in PIECES.items()}
    shown = {told.alert: MINUTES - 20 for piece in PIECES.values() for told in piece.told}
    return play(
        requires_tool("promtool"),
        tmp_path_factory.mktemp("nodes"),
        RULES,
        hosts,
        minutes=MINUTES,
        shown=shown,
        evaluation_seconds=120,
    )


@for_each("name", PIECES)
def test_an_incident_is_told_in_time_to_its_end_and_nothing_else_is(name: str, played: Mapping[str, Played]) -> None:
    """`pytest -s` prints the table of docs/benchmarks.md."""
    piece, found = PIECES[name], played[name]
    for told in piece.told:
        minutes = found.minutes(told.alert)
        first, last = min(minutes, default=math.inf), max(minutes, default=math.nan)
        line = f"| {piece.node} | {name} | {told.alert} | {first - told.onset} min | {(last - told.onset) / 60:.1f} h |"
        sys.stdout.write(f"{line}\n")
    assert found.firing.keys() == {told.alert for told in piece.told}
    for told in piece.told:
        [(labels, at)] = found.firing[told.alert].items()
        assert told.onset <= min(at) <= told.onset + TOLD_WITHIN.get(told.alert, 15)
        assert sorted(at) == list(range(min(at), max(at) + 1))
        assert told.end <= max(at) <= told.end + TAIL
        assert ("uuid" in dict(labels)) == bool(told.gpu)
        assert all(f"GPU {told.gpu}:" in each.annotations["summary"] for each in found.shown[told.alert] if told.gpu)
