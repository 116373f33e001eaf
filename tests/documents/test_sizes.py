"""The sizes of a scrape that docs/operations.md has are those of the exporter that is here."""

import re
from pathlib import Path

import pytest
from tests.bench.scale import OPENMETRICS, scaled
from tests.parts import some
from tests.rig import rig

from gpu_triage_simulator import load_scenario

COLUMNS = {1: 0, 8: 1, 16: 2}
"""GPUs by column of the table."""
SETTLED_SECONDS = 10
TOLERANCE = 0.03


def _row(page: str, head: str) -> list[float]:
    (row,) = re.findall(rf"^\| {head}[^|]*\|(.*)\|$", page, re.MULTILINE)
    return [float(re.sub(r"[^\d.]", "", cell)) for cell in row.split("|")]


@pytest.mark.parametrize("gpus", some(COLUMNS, (1, 8)))
def test_a_scrape_has_the_documented_size(repository: Path, gpus: int) -> None:
    text = (repository / "docs/operations.md").read_text(encoding="utf-8")
    with rig(scaled(load_scenario("h100-8"), gpus, 8 * gpus)) as running:
        running.run(SETTLED_SECONDS)
        page = running.page()
        packed = running.exposition.page(OPENMETRICS, (), gzipped=True)
    series = sum(not line.startswith("#") for line in page.splitlines())
    column = COLUMNS[gpus]
    assert _row(text, "series, with eight processes per GPU")[column] == pytest.approx(series, rel=TOLERANCE)
    assert _row(text, "scrape size, uncompressed")[column] == pytest.approx(len(page) / 1024, rel=TOLERANCE)
    if gpus == 8:
        (kibibytes,) = re.findall(r"a scrape is (\d+) KiB with gzip", text)
        assert int(kibibytes) == pytest.approx(len(packed.body) / 1024, rel=2 * TOLERANCE)
