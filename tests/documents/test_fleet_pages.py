"""What the benchmark of a fleet extrapolates, and what its two pages admit."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.bench.fleet_cost_page import document, gigabytes
from tests.bench.fleet_disk import Block
from tests.bench.fleet_figures import (
    CHOSEN,
    DASHBOARDS,
    EVERYTHING,
    PLAIN,
    RECORDED,
    Cost,
    FleetCosts,
    NotMeasured,
    Victoria,
    Write,
    sent,
)
from tests.bench.rules_page import Scrapes
from tests.bench.sizing_page import hosts_within, sizing, two_digits
from tests.bench.straight_line import line_through

from gpu_triage.options.config import DEFAULT, FULL, PROFILES, RULES

SERIES = {RULES: 1200, DEFAULT: 2000, FULL: 4000}
MIB = 1 << 20


def cost(hosts: int, profile: str = DEFAULT, kind: str = PLAIN) -> Cost:
    """A run of a Prometheus that takes 100 MiB, and 4 KiB per series."""
    series = hosts * SERIES[profile]
    writes = (
        Write("recorded", hosts * 2.0, hosts * 40.0, 0, 1.0),
        Write("chosen", hosts * 12.5, hosts * 250.0, 0, 1.0),
    )
    everything = (Write(EVERYTHING, series / 15, series / 15 * 20, 0, 1.0),)
    return Cost(
        hosts=hosts,
        profile=profile,
        kind=kind,
        page_series=SERIES[profile] - 200,
        series=series,
        samples_per_second=series / 15,
        memory_bytes=90 * MIB + 4096 * series,
        peak_bytes=100 * MIB + 4096 * series,
        cores=0.1 + series / 1e7,
        evaluation=(0.01 + hosts / 1e4, "gpu-triage-load"),
        scrapes=Scrapes(hosts=hosts, due=20, fewest=20, failed=0, longest_seconds=0.1),
        writes=everything if kind == EVERYTHING else writes,
        load=1.5,
        victoria=Victoria(300 * MIB, 1_000_000) if kind == EVERYTHING else None,
    )


BLOCK = Block(
    series=2000, samples=1_000_000, changing=200, chunk_bytes=600_000, index_bytes=200_000, victoria_bytes=None
)
NOISY = replace(BLOCK, changing=400, chunk_bytes=1_100_000, victoria_bytes=900_000)
COSTS = FleetCosts(
    scrape_seconds=15,
    minutes=5.0,
    costs=[*(cost(250, profile) for profile in PROFILES), cost(1000), cost(250, kind=EVERYTHING)],
    not_measured=[NotMeasured(2500, DEFAULT, "needs about 20 GiB, and 14 GiB may be used here")],
    blocks=dict.fromkeys(PROFILES, (BLOCK, NOISY)),
    took_minutes=28.0,
    cpus=2,
)


def plain(text: str) -> str:
    return " ".join(text.split())


def test_a_line_gives_back_what_it_was_drawn_through() -> None:
    line = line_through([(250, 1.5), (1000, 4.5), (500, 2.5)])
    assert line
    assert (line.at(10_000), line.base, line.slope) == pytest.approx((40.5, 0.5, 0.004))
    assert line.reaches(40.5) == pytest.approx(10_000)
    assert line.worst_residual == pytest.approx(0)


def test_the_largest_residual_is_a_share_of_its_point() -> None:
    line = line_through([(0, 1.0), (1, 4.0), (2, 1.0)])
    assert line
    assert line.worst_residual == pytest.approx(1.0)


@pytest.mark.parametrize("points", [[], [(250, 1.0)], [(250, 1.0), (250, 2.0)], [(250, 1.0), (500, 0.0)]])
def test_one_size_has_no_line(points: list[tuple[float, float]]) -> None:
    assert line_through(points) is None


def test_a_line_that_does_not_rise_reaches_nothing() -> None:
    line = line_through([(1, 2.0), (2, 1.0)])
    assert line
    assert line.reaches(10.0) == 0


def test_memory_is_extrapolated_from_the_runs_that_are_comparable() -> None:
    assert COSTS.memory
    assert COSTS.memory.at(0) == pytest.approx(100 * MIB)
    assert COSTS.memory.slope == pytest.approx(4096)
    assert len(COSTS.memory.points) == 4


def test_the_page_has_the_points_the_formula_and_the_ten_thousand_hosts() -> None:
    page = plain(document(COSTS, ["- 2 cores"]))
    assert "| highest memory, GiB | 3.81 per million series + 0.0977 |" in page
    assert "0.30: 1.24, 0.50: 2.01, 1.00: 3.91, 2.00: 7.73 | 0% |" in page
    assert "| 10,000 | `default` | 20.0 million | 1,333,333 | 76 GiB |" in page
    assert "Beyond 1,000 hosts this is extrapolation, not measurement" in page


def test_the_page_says_what_each_profile_saves() -> None:
    page = document(COSTS, [])
    assert re.search(r"^\| `rules` \| 1,000 \| 1,200 \| 80 .*\| 40% \| 40% \|$", page, re.MULTILINE)
    assert re.search(r"^\| `full` .*\| -100% \| -100% \|$", page, re.MULTILINE)


def test_a_size_that_was_not_measured_is_named_with_its_reason() -> None:
    assert "Not measured: 2,500 hosts with profile `default`: needs about 20 GiB" in plain(document(COSTS, []))


def test_missed_scrapes_are_admitted() -> None:
    one = cost(1000)
    late = replace(
        COSTS, costs=[*COSTS.costs[:3], replace(one, scrapes=replace(one.scrapes, failed=1)), COSTS.costs[4]]
    )
    assert "SCRAPES WERE MISSED" not in document(COSTS, [])
    assert "SCRAPES WERE MISSED" in document(late, [])
    assert document(late, []).count("**missed**") == 1


def test_with_one_size_the_pages_say_that_nothing_can_be_extrapolated() -> None:
    single = replace(COSTS, costs=[cost(250, profile) for profile in PROFILES], not_measured=[])
    assert single.evaluation is None
    assert "fewer than two sizes were measured" in document(single, [])
    assert "everything, profile" not in sizing(single)


def test_a_queue_that_fell_behind_is_shown_and_not_extrapolated() -> None:
    behind = [
        replace(each, writes=tuple(replace(write, read_share=0.6) for write in each.writes)) for each in COSTS.costs
    ]
    late = replace(COSTS, costs=behind)
    assert COSTS.write_bits("chosen", 10_000) == pytest.approx(10_000 * 250 * 8)
    assert late.write_bits("chosen", 10_000) is None
    assert late.everything_bits(DEFAULT, 1000) is None
    assert document(late, []).count("| no |") == 3


def test_times_of_a_busy_machine_are_shown_and_not_extrapolated() -> None:
    busy = replace(COSTS, costs=[replace(each, load=9.0) for each in COSTS.costs])
    assert COSTS.evaluation
    assert busy.evaluation is None
    assert busy.cores is None
    page = document(busy, [])
    assert "| longest evaluation, % of the interval | none: fewer than two sizes were measured while" in page
    assert page.count("(busy)") == len(busy.plain)
    assert "(busy)" not in document(COSTS, [])
    assert "the longest evaluation" not in plain(sizing(busy))
    assert "the longest evaluation of a group takes 50% of its interval at about 4,900 hosts" in plain(sizing(COSTS))


def test_disk_is_the_months_samples_times_what_one_takes() -> None:
    low, high = COSTS.disk_bytes(DEFAULT, 1000)
    samples = 2000 / 15 * 1000 * 30 * 86400
    assert (low, high) == pytest.approx((samples * 0.8, samples * 1.3))
    assert gigabytes(low, high) == "276 to 449 GB"


def test_half_of_the_memory_decides_how_many_hosts_fit() -> None:
    fits = ((8 << 30) - 100 * MIB) / 4096 / 2000
    assert hosts_within(COSTS, DEFAULT, 8 << 30) == two_digits(int(fits)) == 1000
    assert "| 16 GiB | 1,700 | 1,000 | 510 |" in sizing(COSTS)


@pytest.mark.parametrize(("hosts", "rounded"), [(0, 0), (7, 7), (99, 99), (1019, 1000), (12_999, 12_000)])
def test_hosts_are_rounded_down_to_two_digits(hosts: int, rounded: int) -> None:
    assert two_digits(hosts) == rounded


def test_remote_write_of_everything_is_in_proportion_to_samples() -> None:
    assert COSTS.everything_bits(FULL, 1000) == pytest.approx(4000 / 15 * 1000 * 20 * 8)


def test_the_raw_series_that_are_sent_are_those_that_the_dashboards_read() -> None:
    metrics = sent()
    chosen, dashboards = (set(metrics[name].split("|")) for name in (CHOSEN, DASHBOARDS))
    assert {"gpu_verdict", "gpu_info", "up"} <= chosen < dashboards
    assert re.fullmatch(metrics[RECORDED], "name:gpu_busy:avg1d")
    assert not re.fullmatch(metrics[DASHBOARDS], "name:gpu_busy:avg1d")


@pytest.mark.parametrize("name", ["benchmarks.md", "sizing.md"])
def test_the_pages_have_no_figure_that_could_not_be_computed(name: str, repository: Path) -> None:
    page = (repository / "docs" / name).read_text(encoding="utf-8")
    assert not re.search(r"\bnan\b|\binf\b|fewer than two sizes were measured \||MISSED", page)
