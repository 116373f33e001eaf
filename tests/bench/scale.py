"""What more GPUs and processes cost on one host: CPU time of one sampled second, and the size of the page.

Every size runs the whole path, from the simulated driver to encoded pages, on a virtual clock. The simulated driver's
own time is taken off.
"""

import gc
import time
from dataclasses import replace
from statistics import median

import click
from tests.bench.launch import Meter, metered_driver
from tests.bench.page import TO_SCREEN, conditions, report, table
from tests.rig import Rig, rig

from gpu_triage_simulator import Scenario, load_scenario
from gpu_triage_simulator.scenario import Gpu, Process

GPU_COUNTS = (1, 2, 4, 8, 16)
PROCESS_COUNTS = (0, 64, 500, 5000)
SETTLE_SECONDS = 65
REPEATS = 3
OPENMETRICS = "application/openmetrics-text"


def scaled(base: Scenario, gpus: int, processes: int) -> Scenario:
    """The scenario with so many GPUs of its first one's model, the processes dealt out evenly among them."""
    return replace(
        base,
        gpus=tuple(_gpu(base.gpus[0], index) for index in range(gpus)),
        processes=tuple(_process(base.processes[0], number, number % gpus) for number in range(processes)),
        events=(),
        expectations=(),
    )


def measure(gpus: int, processes: int, driver: Meter, seconds: int) -> dict[str, object]:
    """The row of one size: CPU time of reading, rendering and encoding, and the uncompressed page."""
    with rig(scaled(load_scenario("h100-8"), gpus, processes)) as running:
        running.exposition.page(OPENMETRICS, (), gzipped=True)
        running.run(SETTLE_SECONDS)
        milliseconds = median(_milliseconds(running, driver, seconds) for _ in range(REPEATS))
        page = running.page()
    click.echo(f"{gpus} GPUs, {processes} processes: {milliseconds:.1f} ms a second", err=True)
    series = sum(not line.startswith("#") for line in page.splitlines())
    return {
        "GPUs": gpus,
        "processes": f"{processes:,}",
        "CPU per second": f"{milliseconds:.1f} ms",
        "series": f"{series:,}",
        "page": f"{len(page) / 1024:.0f} KiB",
    }


def _milliseconds(running: Rig, driver: Meter, seconds: int) -> float:
    gc.collect()
    spent = 0.0
    for _ in range(seconds):
        # Moving the clock lets the simulated host move on, which a real one does by itself.
        running.clock.advance(1)
        began, others = time.thread_time(), driver.seconds
        running.sampler.step()
        running.sampler.publish()
        running.exposition.refresh()
        spent += time.thread_time() - began - (driver.seconds - others)
        running.exposition.page(OPENMETRICS, (), gzipped=True)
    return spent / seconds * 1000


def _gpu(model: Gpu, index: int) -> Gpu:
    bus = 0x10 + 8 * index
    slot = replace(model.slot, bus_id=f"0000:{bus:02x}:00.0", ports=(f"0000:{bus - 1:02x}:00.0",), node=index % 2)
    return replace(model, slot=slot, uuid=f"GPU-{index:08x}-0000-0000-0000-000000000000", serial=str(1000 + index))


def _process(model: Process, number: int, gpu: int) -> Process:
    return replace(model, pid=100_000 + number, gpu=gpu, memory_mib=8, sm=0.0, memory=0.0)


@click.command(help=__doc__)
@click.option("--seconds", default=60, show_default=True, help="Measured for each size, three times.")
@TO_SCREEN
def main(seconds: int, *, to_screen: bool) -> None:
    driver = metered_driver()
    by_gpus = [measure(gpus, 8 * gpus, driver, seconds) for gpus in GPU_COUNTS]
    by_processes = [measure(8, processes, driver, seconds) for processes in PROCESS_COUNTS]
    lines = [conditions(), "", *table(by_gpus), "", *table(by_processes)]
    report("scale", lines, to_screen=to_screen)
