"""What GPUs and processes cost: ``python -m tests.bench.scale`` writes its section of docs/benchmarks.md.

Every size runs the whole path, from the stand-in driver to encoded pages, on a virtual clock: the CPU time of one
sampled second is compared between sizes, so that the machine's speed cancels out.
"""

from __future__ import annotations

import gc
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from statistics import median

from tests.bench.environment import wiring
from tests.bench.floor import metered_standin
from tests.bench.markdown import paragraph
from tests.bench.page import write_section
from tests.rig import Rig, rig

from gpu_triage_simulator import Scenario, load_scenario
from gpu_triage_simulator.scenario import Gpu, Process

GPU_COUNTS = (1, 2, 4, 8, 16)
PROCESS_COUNTS = (0, 64, 500, 5000)
SETTLE_SECONDS = 65
MEASURED_SECONDS = 60
REPEATS = 3
OPENMETRICS = "application/openmetrics-text"


@dataclass(frozen=True, slots=True)
class Cost:
    """What one size costs.

    Attributes:
        gpus: how many.
        processes: on all of them together.
        milliseconds: CPU time of one sampled second, reading, rendering and encoding; stand-in driver taken off.
        series: on the page.
        page_bytes: of the page, uncompressed.
    """

    gpus: int
    processes: int
    milliseconds: float
    series: int
    page_bytes: int


def scaled(base: Scenario, gpus: int, processes: int) -> Scenario:
    """The scenario with so many GPUs of its first one's model, the processes dealt out evenly among them."""
    return replace(
        base,
        gpus=tuple(_gpu(base.gpus[0], index) for index in range(gpus)),
        processes=tuple(_process(base.processes[0], number, number % gpus) for number in range(processes)),
        events=(),
        expectations=(),
    )


def measure(base: Scenario, gpus: int, processes: int, standin: list[float]) -> Cost:
    """The cost of one size: the median of some repeats."""
    with rig(scaled(base, gpus, processes)) as running:
        running.exposition.page(OPENMETRICS, (), gzipped=True)
        running.run(SETTLE_SECONDS)
        milliseconds = median(_milliseconds_a_second(running, standin) for _ in range(REPEATS))
        page = running.page()
    series = sum(not line.startswith("#") for line in page.splitlines())
    return Cost(gpus, processes, milliseconds, series, len(page))


def document(by_gpus: list[Cost], by_processes: list[Cost], head: str) -> str:
    """The section."""
    one, none = by_gpus[0], by_processes[0]
    lines = [
        "## Scale",
        "",
        *paragraph(
            f"""What more GPUs and processes cost on one simulated host of H100: CPU time of one sampled second at the
            default intervals, without the simulated driver, and the size of the page before compression. The ratios
            compare with the first row. `python -m tests.bench scale` measures it: {head}"""
        ),
        "| GPUs, 8 processes each | CPU per second | ratio | ratio per GPU | series | page |",
        "|---:|---:|---:|---:|---:|---:|",
        *(_row(cost, cost.gpus, one, f" {cost.milliseconds / cost.gpus / one.milliseconds:.1f} |") for cost in by_gpus),
        "",
        "| processes on 8 GPUs | CPU per second | ratio | series | page |",
        "|---:|---:|---:|---:|---:|",
        *(_row(cost, cost.processes, none) for cost in by_processes),
        "",
        *paragraph(
            """P2P and topology are one series per pair of GPUs; all else grows with the number of GPUs. `--process.max`
            (32 per GPU) limits what is published and what is read from procfs. The driver's list is read whole, but
            parsed only if it changed: with 5,000 processes of which one per GPU changes every second, about 3 ms
            more."""
        ),
    ]
    return "\n".join(lines)


def main() -> int:
    """Measure and write the section; returns the exit code."""
    at = wiring([], 0.0)
    base = load_scenario("h100-8")
    standin = metered_standin()
    by_gpus = list(_progress(measure(base, gpus, 8 * gpus, standin) for gpus in GPU_COUNTS))
    by_processes = list(_progress(measure(base, 8, processes, standin) for processes in PROCESS_COUNTS))
    write_section("scale", document(by_gpus, by_processes, f"{at.machine}, {at.date}."))
    return 0


def _progress(costs: Iterator[Cost]) -> Iterator[Cost]:
    for cost in costs:
        sys.stderr.write(f"{cost.gpus} GPUs, {cost.processes} processes: {cost.milliseconds:.1f} ms a second\n")
        yield cost


def _milliseconds_a_second(running: Rig, standin: list[float]) -> float:
    gc.collect()
    spent = 0.0
    for _ in range(MEASURED_SECONDS):
        # Moving the clock lets the stand-in host move on, which a real one does by itself.
        running.clock.advance(1)
        began, others = time.thread_time(), standin[0]
        running.sampler.step()
        running.sampler.publish()
        running.exposition.refresh()
        spent += time.thread_time() - began - (standin[0] - others)
        running.exposition.page(OPENMETRICS, (), gzipped=True)
    return spent / MEASURED_SECONDS * 1000


def _gpu(model: Gpu, index: int) -> Gpu:
    bus = 0x10 + 8 * index
    slot = replace(model.slot, bus_id=f"0000:{bus:02x}:00.0", ports=(f"0000:{bus - 1:02x}:00.0",), node=index % 2)
    return replace(model, slot=slot, uuid=f"GPU-{index:08x}-0000-0000-0000-000000000000", serial=str(1000 + index))


def _process(model: Process, number: int, gpu: int) -> Process:
    return replace(model, pid=100_000 + number, gpu=gpu, memory_mib=8, sm=0.0, memory=0.0)


def _row(cost: Cost, size: int, base: Cost, more: str = "") -> str:
    ratio = cost.milliseconds / base.milliseconds
    return (
        f"| {size:,} | {cost.milliseconds:.1f} ms | {ratio:.1f} |{more} {cost.series:,} |"
        f" {cost.page_bytes / 1024:.0f} KiB |"
    )


if __name__ == "__main__":
    sys.exit(main())
