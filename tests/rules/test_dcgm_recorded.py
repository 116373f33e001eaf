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
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path

import pytest
from tests.conftest import NOT_PUBLIC, RequiresTool
from tests.promql.promtool import selector
from tests.rules.handwritten import Series, play
from tests.rules.rulefile import REPOSITORY
from tests.rules.test_dcgm_faults import RULES, assert_told

FOLDER = Path(os.environ.get("GPU_TRIAGE_RECORDED_NODES", REPOSITORY.parent / "shared" / "data" / "real" / "gwdg"))
pytestmark = [
    pytest.mark.full,
    pytest.mark.timeout(1800),
    pytest.mark.skipif(not FOLDER.is_dir(), reason=f"{NOT_PUBLIC} {FOLDER}: set GPU_TRIAGE_RECORDED_NODES"),
]
MINUTES, SAMPLE_MINUTES = 12 * 60, 10
END = MINUTES - 1

PIECES: Mapping[str, tuple[str, str, Mapping[str, tuple[int, int]]]] = {
    "slow": ("ggpu129", "2026-01-05 00:00", {"GpuStraggler": (90, END)}),
    "slow, the others wait": ("ggpu129", "2026-01-06 06:00", {"GpuStraggler": (20, END)}),
    "slow, then dead": ("ggpu129", "2026-01-07 12:00", {"GpuStraggler": (0, 670), "GpuXidCritical": (670, END)}),
    "dead, then off": ("ggpu129", "2026-01-09 00:00", {"GpuXidCritical": (0, 560)}),
    "board": ("ggpu142", "2025-09-08 06:00", {"GpuBoardLost": (380, END)}),
    "another board": ("ggpu149", "2025-06-11 10:00", {"GpuBoardLost": (370, END)}),
    "busy": ("ggpu142", "2025-09-05 00:00", {}),
    "idle": ("ggpu129", "2026-01-03 00:00", {}),
    "Xids of jobs, a reboot": ("ggpu149", "2025-06-06 02:00", {}),
    "after the repair": ("ggpu149", "2025-06-13 00:00", {}),
    "reboot, a gap": ("ggpu143", "2025-03-21 06:00", {}),
    "jobs come and go": ("ggpu143", "2025-03-15 00:00", {}),
}
"""Node, begin, and the only alerts, with the minutes of their incidents. All those of ggpu129 are about GPU 3."""


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


def scraped(node: str, begin: datetime) -> Series:
    """The series, a value a minute."""
    times = [str(begin + timedelta(minutes=minute)) for minute in range(0, MINUTES, SAMPLE_MINUTES)]
    return {
        key: [value for at in times for value in [values.get(at, math.nan)] * SAMPLE_MINUTES]
        for key, values in recorded(node).items()
        if not values.keys().isdisjoint(times)
    }


def test_an_incident_is_told_in_time_to_its_end_and_nothing_else_is(
    requires_tool: RequiresTool, tmp_path: Path
) -> None:
    """`pytest -s` prints the table of docs/benchmarks.md."""
    hosts = {name: scraped(node, datetime.fromisoformat(begin)) for name, (node, begin, _) in PIECES.items()}
    shown = {alert: MINUTES - 20 for _, _, fires in PIECES.values() for alert in fires}
    played = play(
        requires_tool("promtool"), tmp_path, RULES, hosts, minutes=MINUTES, shown=shown, evaluation_seconds=120
    )
    for name, (node, _, fires) in PIECES.items():
        for alert, (onset, _) in fires.items():
            at: list[float] = [*played[name].minutes(alert)] or [math.nan]
            sys.stdout.write(f"| {node} | {name} | {alert} | {at[0] - onset} min | {(at[-1] - onset) / 60:.1f} h |\n")
    for name, (node, _, fires) in PIECES.items():
        assert_told(played[name], fires, "GPU 3:" if node == "ggpu129" else "")
