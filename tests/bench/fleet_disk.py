"""How many bytes of disk a sample takes: a real block of Prometheus, and the same block in VictoriaMetrics."""

from __future__ import annotations

import json
import math
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import click
from tests.bench.servers import own_metrics, summed, victoria_metrics

from gpu_triage_simulator.history import History
from gpu_triage_simulator.openmetrics import write_openmetrics

BLOCK_SECONDS = 7200
"""A block of Prometheus: it starts at a multiple of this."""
QUIET_SECONDS = 2.0
WRITTEN_WITHIN_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Block:
    """What a history takes on disk."""

    # series, samples: that it has
    series: int
    samples: int
    changing: int  # series with more than two different values
    # chunk_bytes, index_bytes: of Prometheus's block
    chunk_bytes: int
    index_bytes: int
    victoria_bytes: int | None  # of all of VictoriaMetrics's parts, index included; None if it was not measured

    @property
    def bytes_per_sample(self) -> float:
        return (self.chunk_bytes + self.index_bytes) / self.samples

    @property
    def victoria_bytes_per_sample(self) -> float | None:
        """Of VictoriaMetrics, index included; None if it was not measured."""
        return None if self.victoria_bytes is None else self.victoria_bytes / self.samples


def block_of(history: History, changing: int, directory: Path, *, victoria: bool) -> Block:
    """Imports a history, which must fit one block of two hours, and measures it."""
    directory.mkdir()
    text = directory / "history.om"
    with text.open("w", encoding="utf-8") as out:
        write_openmetrics(history, out)
    blocks = directory / "blocks"
    command = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "-q", str(text), str(blocks)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    text.unlink()
    written = [path.parent for path in blocks.glob("*/meta.json")]
    if len(written) != 1:
        raise click.ClickException(f"promtool wrote {len(written)} blocks instead of one")
    stats = json.loads((written[0] / "meta.json").read_text(encoding="utf-8"))["stats"]
    return Block(
        series=stats["numSeries"],
        samples=stats["numSamples"],
        changing=changing,
        chunk_bytes=sum(path.stat().st_size for path in (written[0] / "chunks").iterdir()),
        index_bytes=(written[0] / "index").stat().st_size,
        victoria_bytes=_imported(history, stats["numSamples"], directory) if victoria else None,
    )


def _imported(history: History, samples: int, directory: Path) -> int:
    """Bytes that VictoriaMetrics takes for a history of so many samples once its parts are merged."""
    with victoria_metrics(directory) as (url, _):
        request = urllib.request.Request(f"{url}/api/v1/import", data="".join(json_lines(history)).encode())
        with urllib.request.urlopen(request, timeout=60) as answer:
            answer.read()
        if (rows := summed(own_metrics(url), "vm_rows_inserted_total")) != samples:
            raise click.ClickException(f"VictoriaMetrics took {rows:,.0f} of {samples:,} samples")
        return _merged_bytes(url)


def json_lines(history: History) -> Iterator[str]:
    for (name, labels), values in history.series.items():
        present = [(step, value) for step, value in enumerate(values) if not math.isnan(value)]
        line = {
            "metric": {"__name__": name, **dict(labels)},
            "values": [value for _, value in present],
            "timestamps": [round((history.start_seconds + step * history.step_seconds) * 1000) for step, _ in present],
        }
        yield json.dumps(line) + "\n"


def _merged_bytes(url: str) -> int:
    """Bytes of VictoriaMetrics's data after it has written and merged all of it."""
    for path in ("internal/force_flush", "internal/force_merge"):
        with urllib.request.urlopen(f"{url}/{path}", timeout=60) as answer:
            answer.read()
    limit = time.monotonic() + WRITTEN_WITHIN_SECONDS
    before = -1.0
    while (now := summed(own_metrics(url), "vm_data_size_bytes")) != before and time.monotonic() < limit:
        before = now
        time.sleep(QUIET_SECONDS)
    return int(now)
