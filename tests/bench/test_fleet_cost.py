"""A run of the fleet benchmark with two hosts: every figure of its pages comes from a real server."""

from __future__ import annotations

import math
import threading
import time
from pathlib import Path

import psutil
import pytest
from tests.bench.fleet_cost import Bench
from tests.bench.fleet_disk import block_of
from tests.bench.fleet_figures import EVERYTHING, NotMeasured
from tests.bench.fleet_played import PHASES, PlayedPages, changing_series, profile_history, with_noise
from tests.bench.fleet_watch import TooLarge, measured
from tests.conftest import RequiresTool

from gpu_triage.options.config import DEFAULT, RULES
from gpu_triage_simulator.history import History

STEP_SECONDS = 15
START = 1_768_435_200.0


@pytest.fixture(scope="module")
def history() -> History:
    return profile_history(DEFAULT, 300, STEP_SECONDS, START)


@pytest.fixture
def bench(history: History, tmp_path: Path) -> Bench:
    return Bench(
        histories={DEFAULT: history, RULES: history},
        scrape_seconds=1,
        settle_seconds=4.0,
        seconds=6.0,
        keep_free_bytes=0,
        directory=tmp_path,
        stop=threading.Event(),
    )


def values(page: bytes, name: str) -> list[float]:
    return [float(line.rsplit(" ", 1)[1]) for line in page.decode().splitlines() if line.startswith(name)]


def test_a_run_measures_every_figure_on_real_servers(bench: Bench, requires_tool: RequiresTool, tmp_path: Path) -> None:
    requires_tool("prometheus")
    requires_tool("victoria-metrics")
    cost = measured(bench.run(2, DEFAULT, everything=True), tmp_path, bench.stop)
    assert cost.scrapes.hosts == 2
    assert cost.scrapes.fewest > 0
    # A host at the start of the history has no rates yet.
    assert cost.series > 1.9 * cost.page_series > 3000
    assert cost.samples_per_second > 0
    assert cost.peak_bytes >= cost.memory_bytes > 10 << 20
    assert cost.cores > 0
    sent = {write.name: write for write in cost.writes}
    assert sent[EVERYTHING].samples_per_second > 0
    assert all(write.read_share > 0 for write in cost.writes)
    assert all(1 < write.bytes_per_second / write.samples_per_second < 100 for write in cost.writes)
    assert cost.victoria
    assert cost.victoria.samples > 2 * cost.page_series
    assert cost.victoria.memory_bytes > 1 << 20


def test_a_run_ends_when_it_leaves_too_little_memory_to_others(
    bench: Bench, requires_tool: RequiresTool, tmp_path: Path
) -> None:
    requires_tool("prometheus")
    bench.keep_free_bytes = psutil.virtual_memory().total
    with pytest.raises(TooLarge, match="GiB of memory"):
        measured(bench.run(1, DEFAULT), tmp_path, bench.stop)


def test_a_size_that_does_not_fit_is_named_and_not_run(bench: Bench) -> None:
    bench.keep_free_bytes = psutil.virtual_memory().total
    found = bench.larger(2500)
    assert [(each.hosts, each.profile) for each in found] == [(2500, DEFAULT), (2500, RULES)]
    assert all(isinstance(each, NotMeasured) and "GiB may be used here" in each.reason for each in found)


def test_a_block_has_every_sample_in_both_databases(requires_tool: RequiresTool, tmp_path: Path) -> None:
    requires_tool("promtool")
    requires_tool("victoria-metrics")
    now = int(time.time()) // 7200 * 7200 - 7200
    recent = profile_history(RULES, 300, STEP_SECONDS, now)
    block = block_of(recent, changing_series(recent), tmp_path / "block", victoria=True)
    assert block.samples == sum(not math.isnan(value) for column in recent.series.values() for value in column)
    assert 0.1 < block.bytes_per_sample < 16
    assert block.victoria_bytes_per_sample
    assert 0.1 < block.victoria_bytes_per_sample < 16


def test_hosts_play_the_history_from_different_moments_under_their_own_uuids(history: History) -> None:
    pages = PlayedPages(history, 1000.0)
    first, later, other = pages.page(0, 1000.0), pages.page(0, 1000.0 + STEP_SECONDS), pages.page(1, 1000.0)
    assert b'uuid="GPU-0000' in first
    assert b'uuid="GPU-0001' in other
    assert other.replace(b"GPU-0001", b"GPU-0000") == later != first
    assert pages.page(PHASES, 1000.0).replace(b"GPU-0028", b"GPU-0000") == first
    assert len(pages.page(history.steps - 1, 1000.0).splitlines()) == pages.series


def test_times_on_a_page_are_recent_whenever_the_history_is_from(history: History) -> None:
    page = PlayedPages(history, 5e9).page(0, 5e9 + 60)
    (at,) = values(page, "gpu_exporter_last_publication_timestamp_seconds")
    assert abs(at - (5e9 + 60)) <= STEP_SECONDS


def test_noise_changes_readings_and_neither_states_nor_the_direction_of_counters(history: History) -> None:
    noisy = with_noise(history)
    assert changing_series(noisy) > changing_series(history)
    changed = {name for (name, labels), column in noisy.series.items() if column != history.series[name, labels]}
    assert "gpu_power_watts" in changed
    assert not [name for name in changed if name.endswith("_info") or "limit" in name]
    counters = [column for (name, _), column in noisy.series.items() if name.endswith("_total")]
    published = [[value for value in column if not math.isnan(value)] for column in counters]
    assert all(values == sorted(values) for values in published)
