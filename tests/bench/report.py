"""The measurements as docs/benchmarks.md."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from tests.bench import dcgm
from tests.bench.environment import CommandWiring
from tests.bench.measure import SCRAPERS, SCRAPES_PER_SECOND, Durations, Hung, Loaded, Metered, Steady
from tests.bench.scrape import PageSize, Scrapes
from tests.bench.subjects import Subject
from tests.bench.workload import HUNG_GPU

MIB = 2**20
GPUS = 8
MOST_SERIES = 1800
MOST_TIMES_FLOOR = 3.0
MOST_PARTS = 14
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
    """The whole page; ours is the first of the results."""
    ours, *peers = results
    nvitop = next((peer for peer in peers if peer.metered is not None), None)
    parts = (
        _head(wiring),
        "## Targets\n",
        _targets(ours, nvitop, standin),
        "## One scrape a second\n",
        _steady_prose(durations),
        _table(results, _STEADY_ROWS),
        _dcgm_prose(ours.steady.page),
        "## Four scrapers at once\n",
        _loaded_prose(durations),
        _table(results, _LOADED_ROWS),
        "## One GPU does not answer\n",
        _hung_prose(durations),
        _table([result for result in results if result.hung], _HUNG_ROWS),
        "## The stand-in for the driver\n",
        _standin_prose(standin),
        _table([result for result in results if result.metered], _METERED_ROWS),
        "## Where the time goes\n",
        _where(standin.milliseconds),
        _LIMITS,
    )
    return "\n".join(parts)


def _head(at: CommandWiring) -> str:
    return f"""# Benchmarks

What the exporter costs a host with eight GPUs and 64 GPU processes, measured beside two others. `make bench` writes
this page; do not edit it.

- Command: `{at.command}`
- Date: {at.date}
- Machine: {at.machine}
- Python {at.python}; {at.versions}
- Load average over one minute: {at.load_before:.2f} before, {at.load_after:.2f} after (its own load included)

gpu-triage and nvitop-exporter watch the same eight simulated H100 through the same simulated driver library, each its
own copy of it; the 64 processes are real ones that sleep. node_exporter watches this machine, which has no GPU: it is
here as a familiar yardstick. All run with their defaults, on 127.0.0.1, and are scraped as Prometheus does it:
OpenMetrics, gzip, a connection kept open where the server allows it. Latency is what the client sees, its own work
included.
"""


def _targets(ours: Result, nvitop: Result | None, standin: StandIn) -> str:
    rows = "\n".join(
        f"| {target.what} | {target.promised} | {target.measured} | {'met' if target.met else '**not met**'} |"
        for target in _all_targets(ours, nvitop, standin)
    )
    return f"| | target | measured | |\n|---|---|---|---|\n{rows}\n"


def _all_targets(ours: Result, nvitop: Result | None, standin: StandIn) -> Iterator[Target]:
    steady = ours.steady
    page = steady.page
    yield Target("series", f"{MOST_SERIES:,}", f"{page.series:,}", page.series <= MOST_SERIES)
    per_gpu = (page.series - page.process_series) / GPUS
    yield Target(
        "series a GPU, processes aside, the host's included",
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
        yield Target("CPU, stand-in driver taken off", "1.5 % of a core", _percent(own), own <= 0.015)
        times = own / standin.floor_ratio
        measured = f"{_percent(own)} to {_percent(standin.floor_ratio)}: {times:.1f} times"
        yield Target("CPU, to that of the bare NVML calls", "3 times", measured, times <= MOST_TIMES_FLOOR)
    for when, size in (("early", steady.resident_settled_bytes), ("at the end", steady.resident_bytes)):
        without = size - standin.resident_bytes
        yield Target(f"resident memory {when}, stand-in taken off", "42 MiB", _mib(without), without <= 42 * MIB)


def _series_target(ours: PageSize, theirs: PageSize) -> Target:
    factor = ours.series / theirs.series
    ours_rest, theirs_rest = ours.series - ours.process_series, theirs.series - theirs.process_series
    measured = (
        f"{ours.series} to {theirs.series}: {factor:.1f} times; processes aside {ours_rest} to {theirs_rest}: "
        f"{ours_rest / theirs_rest:.1f} times"
    )
    return Target("series, to nvitop-exporter's", "2 times", measured, factor <= 2.0)


def _latency_target(what: str, scrapes: Scrapes) -> Target:
    p50, p99 = scrapes.percentile_ms(50), scrapes.percentile_ms(99)
    met = p50 <= 1.5 and p99 <= 5.0 and not scrapes.failures
    return Target(what, "p50 1.5 ms, p99 5 ms", f"p50 {p50:.1f} ms, p99 {p99:.1f} ms", met)


def _where(milliseconds: Mapping[str, float]) -> str:
    shown = dict(list(milliseconds.items())[:MOST_PARTS])
    rest = sum(milliseconds.values()) - sum(shown.values())
    rows = [f"| {name} | {value:.1f} |" for name, value in (*shown.items(), ("all else", rest))]
    prose = f"""CPU milliseconds of one second of sampling, {sum(milliseconds.values()):.1f} in all: the whole path on a
virtual clock and one thread (`python -m tests.bench.where`), without threads, the web server and the stand-in driver.
"""
    return "\n".join([prose, "| part | ms |", "|---|---:|", *rows, ""])


Row = tuple[str, Callable[[Result], str]]


def _table(results: list[Result], rows: tuple[Row, ...]) -> str:
    names = " | ".join(f"{result.subject.name} {result.subject.version}" for result in results)
    lines = [f"| | {names} |", "|---|" + "---:|" * len(results)]
    lines += [f"| {title} | {' | '.join(cell(result) for result in results)} |" for title, cell in rows]
    return "\n".join(lines) + "\n"


def _percent(ratio: float) -> str:
    return f"{ratio * 100:.2f} %"


def _mib(size: int) -> str:
    return f"{size / MIB:.1f} MiB"


def _latency(scrapes: Scrapes) -> str:
    p50, p99, most = (scrapes.percentile_ms(percent) for percent in (50, 99, 100))
    failed = f", {scrapes.failures} failed" if scrapes.failures else ""
    return f"{p50:.1f} / {p99:.1f} / {most:.1f} ms{failed}"


def _loaded(result: Result) -> Loaded:
    return result.loaded


def _hung(result: Result) -> Hung:
    if result.hung is None:
        raise ValueError(f"{result.subject.name} was not measured with a hung GPU")
    return result.hung


def _metered(result: Result) -> Metered:
    if result.metered is None:
        raise ValueError(f"{result.subject.name} was not metered")
    return result.metered


_STEADY_ROWS: tuple[Row, ...] = (
    ("series", lambda r: str(r.steady.page.series)),
    ("of them about one process", lambda r: str(r.steady.page.process_series)),
    ("bytes a scrape, plain", lambda r: f"{r.steady.page.plain_bytes:,}"),
    ("bytes a scrape, gzip", lambda r: f"{r.steady.page.gzip_bytes:,}"),
    ("latency p50 / p99 / max", lambda r: _latency(r.steady.scrapes)),
    ("CPU, of one core", lambda r: _percent(r.steady.cpu_ratio)),
    ("CPU for 1,000 series, of one core", lambda r: _percent(r.steady.cpu_ratio / r.steady.page.series * 1000)),
    ("resident memory, early", lambda r: _mib(r.steady.resident_settled_bytes)),
    ("resident memory, at the end", lambda r: _mib(r.steady.resident_bytes)),
)

_LOADED_ROWS: tuple[Row, ...] = (
    ("paced: latency p50 / p99 / max", lambda r: _latency(_loaded(r).paced)),
    ("paced: scrapes a second", lambda r: f"{_loaded(r).paced.per_second:.1f}"),
    ("paced: machine busy, all in all", lambda r: f"{_loaded(r).machine_busy_ratio:.0%}"),
    ("back to back: latency p50 / p99 / max", lambda r: _latency(_loaded(r).saturated)),
    ("back to back: scrapes a second", lambda r: f"{_loaded(r).saturated.per_second:.0f}"),
)

_HUNG_ROWS: tuple[Row, ...] = (
    ("latency p50 / p99 / max", lambda r: _latency(_hung(r).paced)),
    ("machine busy, all in all", lambda r: f"{_hung(r).machine_busy_ratio:.0%}"),
    ("GPUs on the page before", lambda r: str(_hung(r).gpus)),
    ("GPUs still measured", lambda r: str(_hung(r).moving)),
    ("GPUs that show an old value as if it were new", lambda r: str(_hung(r).stale)),
)

_METERED_ROWS: tuple[Row, ...] = (
    ("CPU of the process", lambda r: _percent(_metered(r).cpu_ratio)),
    ("of it the stand-in driver", lambda r: _percent(_metered(r).standin_ratio)),
    ("what remains", lambda r: _percent(_metered(r).cpu_ratio - _metered(r).standin_ratio)),
    ("NVML calls a second", lambda r: f"{_metered(r).calls_per_second:.0f}"),
)


def _steady_prose(durations: Durations) -> str:
    return f"""All at the same time, for {durations.steady:.0f} s from their start. CPU and latency are those after the
first {durations.settle:.0f} s, CPU as the kernel accounts it (user and system, children included). Resident memory
is read after {durations.settle:.0f} s and at the end.
"""


def _dcgm_prose(ours: PageSize) -> str:
    theirs = dcgm.default_page(GPUS)
    series, plain = ours.series / theirs.series, ours.plain_bytes / theirs.plain_bytes
    return f"""dcgm-exporter needs a real GPU. By the default set that it documents, with all its labels, its page for
the same host has {theirs.series} series and {theirs.plain_bytes:,} bytes ({theirs.gzip_bytes:,} with gzip). Ours has
{series:.1f} times as many series and {plain:.1f} times as many bytes, among them processes, the host,
links and reasons for low clocks.
"""


def _loaded_prose(durations: Durations) -> str:
    return f"""One exporter at a time, freshly started. {SCRAPERS} scrapers fire at the same instant,
{SCRAPES_PER_SECOND:.0f} times a second each, for {durations.paced:.0f} s: the last of each volley waits for the others,
and the volleys drift over every phase of the exporter's second. Then {durations.saturated:.0f} s without pauses, where
scrapers and exporter fight for the same cores: a figure for comparison, not a capacity. How busy the machine was
counts everybody: where it is far above what exporter and scrapers need, others had a hand in the slowest scrapes.
"""


def _hung_prose(durations: Durations) -> str:
    return f"""Every driver call on GPU {HUNG_GPU} blocks for {durations.hang.ends - durations.hang.starts} s while
{SCRAPERS} scrapers go on as above. Whether a GPU is still measured shows in its power, which never stands still: it
differs between two pages 15 s apart, or is the same, or is withdrawn.
"""


def _standin_prose(standin: StandIn) -> str:
    return f"""The simulated driver is Python in the exporter's own process, and for gpu-triage it also rewrites a
simulated `/sys` and `/proc` every second. Neither exists on a real host. In a run of its own, every call into the
stand-in is timed on its thread's CPU clock; the cost of the timing is in the first line. A real driver call costs
something too, which cannot be measured here. In memory the stand-in adds {_mib(standin.resident_bytes)} to gpu-triage.
The bare NVML calls are those that gpu-triage makes, asked again through pynvml with nothing done about the answers:
{_percent(standin.floor_ratio)} of a core.
"""


_LIMITS = """## What this does not show

No GPU, no NVIDIA driver and no kernel that fills `/proc` for 200 CPUs took part. gpu-triage reads a simulated `/sys`
and `/proc` made of ordinary files, nvitop-exporter and node_exporter read this machine's own. The machine is small and
virtual: compare the columns, not the figures with another host's.
"""
