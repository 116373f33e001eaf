"""The measurements as the first section of docs/benchmarks.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tests.bench import dcgm
from tests.bench.environment import CommandWiring
from tests.bench.markdown import paragraph, row, table
from tests.bench.measure import SCRAPERS, SCRAPES_PER_SECOND, Durations, Hung, Loaded, Metered, Steady
from tests.bench.scrape import PageSize, Scrapes
from tests.bench.subjects import Subject
from tests.bench.workload import HUNG_GPU

MIB = 2**20
GPUS = 8
MOST_SERIES = 1800
MOST_TIMES_FLOOR = 3.0
MOST_PARTS = 6
MOST_SERIES_PER_GPU = 190


@dataclass(frozen=True, slots=True)
class Result:
    """All about one exporter; None for what does not apply to it."""

    subject: Subject
    steady: Steady
    loaded: Loaded
    hung: Hung | None
    metered: Metered | None


@dataclass(frozen=True, slots=True)
class StandIn:
    """The stand-in driver, and what it stands in for.

    Attributes:
        resident_bytes: that it adds to our process.
        floor_ratio: share of one core that the bare NVML calls take.
        milliseconds: CPU time a second by part of our sampler.
    """

    resident_bytes: int
    floor_ratio: float
    milliseconds: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Target:
    """A promise and what was measured."""

    what: str
    promised: str
    measured: str
    met: bool


def document(
    results: list[Result],
    standin: StandIn,
    durations: Durations,
    wiring: CommandWiring,
) -> str:
    """The section; ours is the first of the results."""
    ours, *peers = results
    nvitop = next((peer for peer in peers if peer.metered is not None), None)
    return "\n".join(
        [
            "## Cost",
            "",
            *_head(wiring, durations),
            *_targets(ours, nvitop, standin),
            "",
            *_table(results),
            "",
            *_prose(ours.steady.page, standin, durations),
        ]
    )


def _head(at: CommandWiring, durations: Durations) -> Iterator[str]:
    yield from paragraph(
        f"""One host with eight GPUs and 64 processes. gpu-triage and nvitop-exporter watch the same simulated H100
        through the same simulated driver; node_exporter watches this machine. All have their defaults and are scraped
        once per second for {durations.steady:.0f} s, then each alone by {SCRAPERS} scrapers, {SCRAPES_PER_SECOND:.0f}
        times per second each: OpenMetrics, gzip, connections kept open."""
    )
    yield from paragraph(f"`{at.command}`, {at.date}, {at.machine}, Python {at.python}", point=True)
    yield from paragraph(
        f"{at.versions}; load average {at.load_before:.2f} before, {at.load_after:.2f} after", point=True
    )
    yield ""


def _targets(ours: Result, nvitop: Result | None, standin: StandIn) -> Iterator[str]:
    yield from table("<", "target<", "measured<", "<")
    for target in _all_targets(ours, nvitop, standin):
        yield row(target.what, target.promised, target.measured, "met" if target.met else "**not met**")


def _all_targets(ours: Result, nvitop: Result | None, standin: StandIn) -> Iterator[Target]:
    steady = ours.steady
    page = steady.page
    yield Target("series", f"{MOST_SERIES:,}", f"{page.series:,}", page.series <= MOST_SERIES)
    per_gpu = (page.series - page.process_series) / GPUS
    yield Target(
        "series per GPU with those of the host, without processes",
        f"{MOST_SERIES_PER_GPU}",
        f"{per_gpu:.0f}; dcgm-exporter {len(dcgm.FIELDS)}",
        per_gpu <= MOST_SERIES_PER_GPU,
    )
    if nvitop is not None:
        yield _series_target(page, nvitop.steady.page)
    yield _latency_target(f"latency, {SCRAPERS} scrapers", ours.loaded.paced)
    if ours.hung is not None:
        yield _latency_target("latency while one GPU hangs", ours.hung.paced)
    if ours.metered is not None:
        own = ours.metered.cpu_ratio - ours.metered.standin_ratio
        yield Target("CPU without the simulated driver", "1.5 % of a core", _percent(own), own <= 0.015)
        times = own / standin.floor_ratio
        measured = f"{_percent(own)} to {_percent(standin.floor_ratio)}: {times:.1f} times"
        yield Target("CPU, compared with the bare NVML calls", "3 times", measured, times <= MOST_TIMES_FLOOR)
    for when, size in (("early", steady.resident_settled_bytes), ("at the end", steady.resident_bytes)):
        without = size - standin.resident_bytes
        yield Target(
            f"resident memory {when}, without the simulated driver", "42 MiB", _mib(without), without <= 42 * MIB
        )


def _series_target(ours: PageSize, theirs: PageSize) -> Target:
    factor = ours.series / theirs.series
    ours_rest, theirs_rest = ours.series - ours.process_series, theirs.series - theirs.process_series
    measured = (
        f"{ours.series} to {theirs.series}: {factor:.1f} times; without processes {ours_rest} to {theirs_rest}: "
        f"{ours_rest / theirs_rest:.1f} times"
    )
    return Target("series, compared with nvitop-exporter", "2 times", measured, factor <= 2.0)


def _latency_target(what: str, scrapes: Scrapes) -> Target:
    p50, p99 = scrapes.percentile_ms(50), scrapes.percentile_ms(99)
    met = p50 <= 1.5 and p99 <= 5.0 and not scrapes.failures
    return Target(what, "p50 1.5 ms, p99 5 ms", f"p50 {p50:.1f} ms, p99 {p99:.1f} ms", met)


Row = tuple[str, Callable[[Result], str]]


def _table(results: list[Result]) -> Iterator[str]:
    yield from table("<", *(f"{result.subject.name} {result.subject.version}" for result in results))
    for title, cell in _ROWS:
        yield row(title, *(cell(result) for result in results))


def _percent(ratio: float) -> str:
    return f"{ratio * 100:.2f} %"


def _mib(size: int) -> str:
    return f"{size / MIB:.1f} MiB"


def _latency(scrapes: Scrapes) -> str:
    p50, p99, most = (scrapes.percentile_ms(percent) for percent in (50, 99, 100))
    failed = f", {scrapes.failures} failed" if scrapes.failures else ""
    return f"{p50:.1f} / {p99:.1f} / {most:.1f} ms{failed}"


def _of_hung(cell: Callable[[Hung], str]) -> Callable[[Result], str]:
    return lambda result: cell(result.hung) if result.hung else ""


def _of_metered(cell: Callable[[Metered], str]) -> Callable[[Result], str]:
    return lambda result: cell(result.metered) if result.metered else ""


_ROWS: tuple[Row, ...] = (
    ("series", lambda r: str(r.steady.page.series)),
    ("series about one process", lambda r: str(r.steady.page.process_series)),
    ("bytes per scrape, plain", lambda r: f"{r.steady.page.plain_bytes:,}"),
    ("bytes per scrape, gzip", lambda r: f"{r.steady.page.gzip_bytes:,}"),
    ("latency p50 / p99 / max", lambda r: _latency(r.steady.scrapes)),
    ("CPU, of one core", lambda r: _percent(r.steady.cpu_ratio)),
    ("CPU per 1,000 series, of one core", lambda r: _percent(r.steady.cpu_ratio / r.steady.page.series * 1000)),
    ("resident memory at the end", lambda r: _mib(r.steady.resident_bytes)),
    (f"{SCRAPERS} scrapers: latency p50 / p99 / max", lambda r: _latency(r.loaded.paced)),
    (f"{SCRAPERS} scrapers without pauses: scrapes per second", lambda r: f"{r.loaded.saturated.per_second:.0f}"),
    ("one GPU hangs: latency p50 / p99 / max", _of_hung(lambda hung: _latency(hung.paced))),
    ("one GPU hangs: GPUs still measured", _of_hung(lambda hung: f"{hung.moving} of {hung.gpus}")),
    ("one GPU hangs: GPUs with an old value", _of_hung(lambda hung: str(hung.stale))),
    ("NVML calls per second", _of_metered(lambda metered: f"{metered.calls_per_second:.0f}")),
    ("CPU of the simulated driver, in another run", _of_metered(lambda metered: _percent(metered.standin_ratio))),
    ("CPU without it", _of_metered(lambda metered: _percent(metered.cpu_ratio - metered.standin_ratio))),
)


def _prose(ours: PageSize, standin: StandIn, durations: Durations) -> Iterator[str]:
    theirs = dcgm.default_page(GPUS)
    parts = list(standin.milliseconds.items())[:MOST_PARTS]
    longest = "; ".join(f"{name} {milliseconds:.1f}" for name, milliseconds in parts)
    yield from paragraph(
        f"""*One GPU hangs*: every driver call on GPU {HUNG_GPU} blocks for {
            durations.hang.ends - durations.hang.starts
        } s. The simulated driver is Python in the exporter's process; it adds
        {_mib(standin.resident_bytes)} to gpu-triage. The bare NVML calls are the same calls through pynvml and nothing
        else, {_percent(standin.floor_ratio)} of a core. dcgm-exporter needs a real GPU: with its documented default
        set, this host has {theirs.series} series and {theirs.plain_bytes:,} bytes. gpu-triage has {
            ours.series / theirs.series:.1f} times as many series and {
            ours.plain_bytes / theirs.plain_bytes:.1f} times as many bytes."""
    )
    yield from paragraph(
        f"""One second of sampling takes {sum(standin.milliseconds.values()):.1f} ms of CPU (`python -m
        tests.bench.where`), most of it for: {longest}. No GPU, no NVIDIA driver and no `/proc` of 200 CPUs took part:
        compare the columns, not the figures with those of another host."""
    )
