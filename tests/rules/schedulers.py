"""What schedulers expose (`schedulers.prom`), as series."""

import re
from pathlib import Path

from gpu_triage_simulator.history import SeriesKey


def exposed() -> dict[SeriesKey, float]:
    lines = Path(__file__).with_suffix(".prom").read_text(encoding="utf-8").splitlines()
    found = (re.fullmatch(r"(?P<name>\w+){(?P<labels>.*)} (?P<value>\d+)", line) for line in lines)
    return {
        (each["name"], tuple(re.findall(r'(\w+)="([^"]*)"', each["labels"]))): float(each["value"])
        for each in found
        if each is not None
    }
