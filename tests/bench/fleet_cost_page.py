"""The section of docs/benchmarks.md with what a fleet was measured to cost."""

from __future__ import annotations

from collections.abc import Iterator

from tests.bench.fleet_figures import CHOSEN, DASHBOARDS, EVERYTHING, PLAIN, RECORDED, Cost, FleetCosts, Write
from tests.bench.markdown import paragraph, row, table

from gpu_triage.options.config import DEFAULT, PROFILES

SHOWN_HOSTS = 10_000
GIB, GB, MBIT = 2**30, 1e9, 1e6

LIMITS = """The hosts are simulated, healthy and alike. A host in trouble has [more recorded
    series](../rules/README.md#what-the-exporter-decides-and-what-the-rules-decide). Prometheus started empty, no
    dashboard was open, and pages were neither compressed nor encrypted. When all targets get new labels, the old
    series stay in memory for two to three hours: for that time, double the memory. Debian's Prometheus and
    VictoriaMetrics were measured; other versions differ."""


def document(costs: FleetCosts, head: list[str]) -> str:
    """The section."""
    parts = (
        _intro(costs, head),
        _runs(costs),
        _profiles(costs),
        _sent(costs),
        _disk(costs),
        _lines(costs),
        _extrapolated(costs),
        paragraph(LIMITS),
    )
    return "\n".join(line for part in parts for line in part)


def gigabytes(low_bytes: float, high_bytes: float) -> str:
    """A range of sizes on disk."""
    decimals = 0 if low_bytes >= 10 * GB else 2
    return f"{low_bytes / GB:,.{decimals}f} to {high_bytes / GB:,.{decimals}f} GB"


def _intro(costs: FleetCosts, head: list[str]) -> Iterator[str]:
    complete = all(cost.scrapes.complete for cost in costs.costs)
    missed = "No scrape was missed." if complete else "SCRAPES WERE MISSED: the rows that say so are not valid."
    yield from ("## Fleet", "")
    yield from paragraph(
        f"""Simulated hosts with eight H100 each, scraped every {costs.scrape_seconds} s by a real Prometheus that
        evaluates the shipped rules and forwards series with remote write. [sizing.md](sizing.md) has the advice that
        follows from these figures; `python -m tests.bench fleet` writes both. Every host plays the same recorded
        history of `h100-8`, from another moment on, with 2% of noise. Series, samples and bytes do not depend on the
        load of the machine; CPU and evaluation times do."""
    )
    yield from head
    yield from paragraph(
        f"{costs.minutes:g} minutes per run, {costs.took_minutes:.0f} minutes in all. {missed}", point=True
    )
    yield ""


def _ordered(costs: list[Cost]) -> list[Cost]:
    return sorted(costs, key=lambda each: (each.hosts, PROFILES.index(each.profile)))


def _runs(costs: FleetCosts) -> Iterator[str]:
    yield from table(
        "hosts",
        "profile<",
        "series",
        "samples/s",
        "memory",
        "highest",
        "KiB per series",
        "cores",
        "longest evaluation<",
        "load",
        "scrapes<",
    )
    for cost in _ordered(costs.plain):
        share, group = cost.evaluation
        yield row(
            f"{cost.hosts:,}",
            f"`{cost.profile}`",
            f"{cost.series:,}",
            f"{cost.samples_per_second:,.0f}",
            f"{cost.memory_bytes / GIB:.2f} GiB",
            f"{cost.peak_bytes / GIB:.2f} GiB",
            f"{cost.peak_bytes / cost.series / 1024:.1f}",
            f"{cost.cores:.2f}",
            f"{share:.1%}, {group}" + (" (busy)" if cost.load > costs.busy_load else ""),
            f"{cost.load:.1f}",
            "complete" if cost.scrapes.complete else "**missed**",
        )
    yield ""
    yield from paragraph(
        f"""Series and samples include what the rules record. *Memory* is the highest resident memory in the minutes
        that count, *highest* that of the whole run, with a block written at its end. *Longest evaluation* is a share
        of the interval of that group. *Busy* marks runs on a machine with a load average above {costs.busy_load:g}."""
    )
    for each in costs.not_measured:
        yield from paragraph(
            f"Not measured: {each.hosts:,} hosts with profile `{each.profile}`: {each.reason}.", point=True
        )
    if costs.not_measured:
        yield ""


def _profiles(costs: FleetCosts) -> Iterator[str]:
    yield from paragraph(
        """Per host and profile, and the savings compared with `default`. *Held* includes recorded series; a negative
        share is an increase."""
    )
    yield from table(
        "profile<",
        "series served",
        "series held",
        "samples/s",
        "memory",
        "disk, 30 days",
        "fewer series",
        "fewer samples",
    )
    for profile in PROFILES:
        series, samples = costs.series_per_host(profile), costs.samples_per_host(profile)
        yield row(
            f"`{profile}`",
            f"{costs.page_series(profile):,}",
            f"{series:,.0f}",
            f"{samples:,.0f}",
            f"{costs.memory.slope * series / 2**20:.1f} MiB" if costs.memory else "-",
            gigabytes(*costs.disk_bytes(profile, 1)),
            f"{1 - series / costs.series_per_host(DEFAULT):.0%}",
            f"{1 - samples / costs.samples_per_host(DEFAULT):.0%}",
        )
    yield ""


def _sent(costs: FleetCosts) -> Iterator[str]:
    yield from paragraph(
        """Remote write of the largest fleet, and of a smaller one that sends more series. *recorded* is what the rules
        record and their alerts; *chosen* the raw series of the fleet and capacity dashboards; *dashboards* those of
        all dashboards; *everything* is every series. Bytes are the bodies of the requests, compressed with snappy.
        *Kept up* is "no" if the queue fell behind the scrapes."""
    )
    yield from table(
        "hosts", "profile<", "series sent<", "samples/s", "bytes per sample", "Mbit/s", "failed samples", "kept up<"
    )
    largest = max(cost.hosts for cost in costs.plain)
    for cost in _ordered(list(costs.costs)):
        if cost.kind != PLAIN:
            yield from (_write(cost, write) for write in cost.writes if write.name in {DASHBOARDS, EVERYTHING})
        elif cost.hosts == largest:
            yield from (_write(cost, write) for write in cost.writes)
    yield ""
    if costs.everything and costs.everything.victoria:
        run, took = costs.everything, costs.everything.victoria
        yield from paragraph(
            f"""A single-node VictoriaMetrics that received everything of {run.hosts:,} hosts with profile
            `{run.profile}` had {took.memory_bytes / GIB:.2f} GiB resident at the end."""
        )


def _write(cost: Cost, write: Write) -> str:
    return row(
        f"{cost.hosts:,}",
        f"`{cost.profile}`",
        write.name,
        f"{write.samples_per_second:,.0f}",
        f"{write.bytes_per_second / write.samples_per_second:.1f}",
        f"{write.bytes_per_second * 8 / MBIT:.2f}",
        f"{write.failed:,}",
        "yes" if write.kept_up else "no",
    )


def _disk(costs: FleetCosts) -> Iterator[str]:
    yield from paragraph(
        f"""Disk, measured on the history of one host ({costs.blocks[DEFAULT][0].samples:,} samples with profile
        `{DEFAULT}`), written as one block. A host in trouble is closer to the history with noise. The write-ahead log
        of the last two to three hours comes on top."""
    )
    yield from table(
        "profile<",
        "history<",
        "series that change",
        "bytes per sample, chunks",
        "with index",
        "VictoriaMetrics",
        "1,000 hosts, 30 days",
    )
    for profile in PROFILES:
        pairs = zip(("as simulated", "with noise"), costs.blocks[profile], costs.disk_bytes(profile, 1000), strict=True)
        for name, block, month_bytes in pairs:
            other = block.victoria_bytes_per_sample
            yield row(
                f"`{profile}`",
                name,
                f"{block.changing:,} of {block.series:,}",
                f"{block.chunk_bytes / block.samples:.2f}",
                f"{block.bytes_per_sample:.2f}",
                "-" if other is None else f"{other:.2f}",
                f"{month_bytes / GB:,.0f} GB",
            )
    yield ""


def _lines(costs: FleetCosts) -> Iterator[str]:
    yield from table("figure<", "line<", "measured points<", "largest residual")
    cores, evaluation, calm = "cores", "longest evaluation, % of the interval", " while the machine was not busy"
    shown = (
        ("highest memory, GiB", "million series", costs.memory, 1e6, GIB),
        (cores, "thousand samples/s", costs.cores, 1e3, 1.0),
        (evaluation, "thousand hosts", costs.evaluation, 1e3, 0.01),
    )
    for figure, unit, line, x, y in shown:
        if line is None:
            yield row(
                figure,
                f"none: fewer than two sizes were measured{calm if figure in {cores, evaluation} else ''}",
                "",
                "",
            )
            continue
        points = ", ".join(f"{at / x:.2f}: {value / y:.3g}" for at, value in line.points)
        sign = "-" if line.base < 0 else "+"
        formula = f"{line.slope * x / y:.3g} per {unit} {sign} {abs(line.base) / y:.3g}"
        yield row(figure, formula, points, f"{line.worst_residual:.0%}" if line.sizes > 2 else "none: two sizes")
    yield ""
    yield from paragraph(
        f"""Least-squares lines through all runs except the one that sends everything; cores and evaluations leave out
        runs with a load average above {costs.busy_load:g}. The largest residual is a share of its point. Series,
        samples, disk and remote write are in proportion to hosts."""
    )


def _extrapolated(costs: FleetCosts) -> Iterator[str]:
    largest = max(cost.hosts for cost in costs.plain)
    yield from paragraph(
        f"""{SHOWN_HOSTS:,} hosts, computed with these lines. Beyond {largest:,} hosts this is extrapolation, not
        measurement."""
    )
    yield from table(
        "hosts",
        "profile<",
        "series",
        "samples/s",
        "highest memory",
        "cores",
        "longest evaluation",
        "recorded and chosen",
        "everything",
        "disk, 30 days",
    )
    for profile in PROFILES:
        yield _fleet_row(costs, SHOWN_HOSTS, profile)
    yield ""


def _fleet_row(costs: FleetCosts, hosts: int, profile: str) -> str:
    series, samples = costs.series_per_host(profile) * hosts, costs.samples_per_host(profile) * hosts
    both = [bits for name in (RECORDED, CHOSEN) if (bits := costs.write_bits(name, hosts))]
    everything = costs.everything_bits(profile, hosts)
    return row(
        f"{hosts:,}",
        f"`{profile}`",
        f"{series / 1e6:.1f} million",
        f"{samples:,.0f}",
        f"{costs.memory.at(series) / GIB:.0f} GiB" if costs.memory else "-",
        f"{costs.cores.at(samples):.1f}" if costs.cores else "-",
        f"{costs.evaluation.at(hosts):.0%}" if costs.evaluation else "-",
        f"{sum(both) / MBIT:.0f} Mbit/s" if both else "-",
        f"{everything / MBIT:.0f} Mbit/s" if everything else "-",
        gigabytes(*costs.disk_bytes(profile, hosts)),
    )
