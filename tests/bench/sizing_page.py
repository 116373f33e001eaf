"""Sizing advice for a fleet, computed from what was measured."""

from __future__ import annotations

from collections.abc import Iterator

from tests.bench.fleet_cost_page import GB, GIB, MBIT, gigabytes
from tests.bench.fleet_figures import CHOSEN, DASHBOARDS, EVERYTHING, RECORDED, FleetCosts
from tests.bench.markdown import paragraph, row, table

from gpu_triage.options.config import DEFAULT, FULL, PROFILES, RULES

MACHINES_GIB = (16, 32, 64, 128)
USED_SHARE = 0.5
"""Of a machine's memory: the rest is for queries, churn of series, restarts and the page cache."""
ALLOWED_EVALUATION = 0.5


def sizing(costs: FleetCosts) -> str:
    """The page."""
    parts = (_memory(costs), _shards(costs), _profile(costs), _sent(costs), _disk(costs))
    intro = paragraph(
        """How large a Prometheus must be for a fleet of hosts with eight GPUs each. All figures follow from
        [benchmarks.md](benchmarks.md#fleet), which has the measured points, the formulas and their limits. `make
        bench-fleet` writes both; do not edit them. [Operations](operations.md#sizing) has the exporter
        itself."""
    )
    return "\n".join(["# Sizing Prometheus", "", *intro, *(line for part in parts for line in part)])


def hosts_within(costs: FleetCosts, profile: str, memory_bytes: float) -> int:
    """How many hosts one Prometheus holds when it may take so much memory at its highest; 0 where that is not known."""
    if costs.memory is None:
        return 0
    return two_digits(int(costs.memory.reaches(memory_bytes) / costs.series_per_host(profile)))


def two_digits(hosts: int) -> int:
    """Rounded down to two significant digits: the figures are no better than that."""
    unit = int(10 ** max(0, len(str(hosts)) - 2))
    return hosts // unit * unit


def _memory(costs: FleetCosts) -> Iterator[str]:
    yield from ("## Hosts per Prometheus", "")
    yield from table("memory of the machine", *(f"`{each}`" for each in PROFILES))
    for gib in MACHINES_GIB:
        yield row(f"{gib} GiB", *(f"{hosts_within(costs, each, gib * GIB * USED_SHARE):,}" for each in PROFILES))
    yield ""
    largest = max(cost.hosts for cost in costs.plain)
    yield from paragraph(
        f"""Hosts by `--metrics.profile`, scraped every {costs.scrape_seconds} s, if Prometheus takes at most
        {USED_SHARE:.0%} of the memory. The other half is for queries, for new series after a change of labels, and for
        reading the write-ahead log after a restart. Figures above {largest:,} hosts are extrapolated. Smaller hosts
        count by their series."""
    )


def _shards(costs: FleetCosts) -> Iterator[str]:
    yield from ("## When to shard", "")
    yield from paragraph(
        """Shard when one machine of the table above is no longer enough. Until then, prefer one Prometheus: alerts and
        dashboards that compare hosts need all of them in one place. Check the other limits too:"""
    )
    if costs.cores is not None:
        cores = costs.cores.at(costs.samples_per_host(DEFAULT) * 1000)
        yield from paragraph(
            f"""CPU: 1,000 hosts with profile `{DEFAULT}` keep {cores:.1f} cores busy with scrapes, rules and remote
            write. As a rule of thumb, give Prometheus twice as many, so that queries do not delay the rules.""",
            point=True,
        )
    if costs.evaluation and (limit := two_digits(int(costs.evaluation.reaches(ALLOWED_EVALUATION)))):
        yield from paragraph(
            f"""Rules: the longest evaluation of a group takes {ALLOWED_EVALUATION:.0%} of its interval at about
            {limit:,} hosts, with windows of hours and days not yet full; [benchmarks.md](benchmarks.md#rules)
            has them full. Watch `prometheus_rule_group_iterations_missed_total`.""",
            point=True,
        )
    else:
        yield from paragraph(
            """Rules: [benchmarks.md](benchmarks.md#rules) has how long each group takes. Watch
            `prometheus_rule_group_iterations_missed_total`.""",
            point=True,
        )
    yield from paragraph(
        """[deploy/fleet](../deploy/fleet/README.md) has configurations for shards and for the servers above them, and
        lists what does not work across shards.""",
        point=True,
    )
    yield ""


def _profile(costs: FleetCosts) -> Iterator[str]:
    yield from ("## Which profile", "")
    base = costs.series_per_host(DEFAULT)
    texts = (
        f"`{DEFAULT}` fills the dashboards, with {base:,.0f} series per host, recorded ones included. Start with it.",
        f"""`{RULES}` has {1 - costs.series_per_host(RULES) / base:.0%} fewer. All alerts work; many dashboard panels
        are empty. Use it before you shard for memory alone, and look at single hosts on their [status
        page](status-page.md).""",
        f"""`{FULL}` has {costs.series_per_host(FULL) / base - 1:.0%} more, with each link and each collector. Use it
        on the hosts that you investigate, not on a whole fleet.""",
        """A scrape interval of 60 s, the longest that the rules support, cuts samples and disk to about a quarter. It
        does not cut the number of series, so it hardly saves memory.""",
        "[Fewer series, or more](operations.md#fewer-series-or-more) has the other options, such as `--process.max 0`.",
    )
    for text in texts:
        yield from paragraph(text, point=True)
    yield ""


def _sent(costs: FleetCosts) -> Iterator[str]:
    yield from ("## Remote write", "", "Of 1,000 hosts:", "")
    yield from table("series sent<", "Mbit/s")
    raw = {CHOSEN: "raw series of the fleet and capacity dashboards", DASHBOARDS: "raw series of all dashboards"}
    for name, text in {RECORDED: "recorded series and alerts", **raw}.items():
        if bits := costs.write_bits(name, 1000):
            yield row(text, f"{bits / MBIT:.1f}")
    for profile in PROFILES:
        if bits := costs.everything_bits(profile, 1000):
            yield row(f"{EVERYTHING}, profile `{profile}`", f"{bits / MBIT:.0f}")
    yield ""
    yield from paragraph(
        """[deploy/fleet](../deploy/fleet/README.md) has configurations to copy: `prometheus/shard-remote-write.yml`
        sends the recorded series and what all dashboards read, `prometheus/above.yml` has the shorter list for the
        fleet and capacity dashboards."""
    )


def _disk(costs: FleetCosts) -> Iterator[str]:
    yield from ("## Disk", "")
    yield from table("profile<", "1,000 hosts, 30 days")
    for profile in PROFILES:
        yield row(f"`{profile}`", gigabytes(*costs.disk_bytes(profile, 1000)))
    yield ""
    low, high = costs.disk_bytes(DEFAULT, 1)
    yield from paragraph(
        f"""The lower figure is for hosts whose readings barely change, the higher one for hosts whose readings change
        at every scrape. Plan for the higher one, {high / GB:.2f} instead of {low / GB:.2f} GB per host with profile
        `{DEFAULT}`. Set `--storage.tsdb.retention.size` to at most 80% of the disk: the write-ahead log and the
        merging of blocks need the rest."""
    )
