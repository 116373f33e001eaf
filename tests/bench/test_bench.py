"""The parts of the benchmarks that can be wrong without anybody noticing."""

import subprocess
import sys
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from tests.bench import exporters, hosts, peer
from tests.bench.fleet import CHOSEN, DASHBOARDS, EVERYTHING, RECORDED, Block, Cost, Fleet, Write, sent
from tests.bench.page import BENCHMARKS, report, table
from tests.bench.rules import CALM, HOT, Seen
from tests.bench.scrape import Connection, PageSize, Scrapes, merged
from tests.listening import listening

from gpu_triage.options.config import DEFAULT, PROFILES

MIB = 1 << 20


def test_a_percentile_is_a_latency_that_was_measured() -> None:
    scrapes = merged([Scrapes(tuple(map(float, range(1, 51))), 1), Scrapes(tuple(map(float, range(51, 101))), 2)])
    assert scrapes.latencies == "50.0 / 99.0 / 100.0 ms, 3 failed"
    assert Scrapes((), 4).percentile_ms(50) == float("inf")


def test_a_scraper_keeps_its_connection_as_prometheus_does() -> None:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            clients.add(self.client_address)
            self.send_response(200)
            self.send_header("Content-Length", "5")
            self.end_headers()
            self.wfile.write(b"page\n")

    clients: set[tuple[str, int]] = set()
    with listening(ThreadingHTTPServer(("127.0.0.1", 0), Handler)) as address:
        connection = Connection(int(address.rpartition(":")[2]))
        assert [connection.get({}) for _ in range(3)] == [(200, b"page\n")] * 3
        connection.close()
    assert len(clients) == 1


def test_the_table_has_a_column_per_exporter_and_our_share_of_each() -> None:
    steady = peer.Steady(Scrapes((1.0, 2.0), 0), 0.01, 40 * MIB, PageSize(1600, 200, 200_000, 20_000))
    ours = peer.Result(exporters.this_exporter(), steady, steady.scrapes, None, peer.Metered(0.02, 0.005, 150.0))
    theirs = replace(ours, exporter=replace(ours.exporter, name="other"), steady=replace(steady, cpu_ratio=0.04))
    rows = {next(iter(row.values())): list(row.values())[1:] for row in peer.rows([ours, theirs], 8 * MIB)}
    assert rows["CPU without it"] == ["1.50 %", "1.50 %"]
    assert rows["gpu-triage's CPU, as a share of it"] == ["1.00", "0.25"]
    assert rows["resident memory of the simulated driver in it"] == ["8.0 MiB", ""]


def test_the_peer_starts_with_nothing_installed_but_what_its_lock_names() -> None:
    pinned = set(exporters.peer_pins())
    others = [
        module
        for module, distributions in packages_distributions().items()
        if not module.startswith(("gpu_triage", "tests"))
        and not pinned & {name.lower().replace("_", "-") for name in distributions}
    ]
    imports = ("tests.bench.launch", "gpu_triage_simulator.host", "gpu_triage_simulator.simulated_nvml")
    # None in sys.modules stands for a module that is not installed.
    program = f"import sys; sys.modules.update(dict.fromkeys({others!r})); import {', '.join(imports)}"
    command = ["env", exporters.PYTHONPATH, sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_every_four_hosts_of_a_fleet_are_one_job() -> None:
    labels = hosts.written({"uuid": "GPU-7c963d6b", "workload_pod": "train-3"})
    assert hosts.of_host(labels, 3) == 'uuid="GPU-00033d6b",workload_pod="train-job0000-3"'
    assert hosts.of_host(labels, 4) == 'uuid="GPU-00043d6b",workload_pod="train-job0001-3"'


@pytest.mark.parametrize(
    ("calm", "hot", "slow"), [(0.7, 1.4, False), (0.8, 1.4, True), (0.7, 1.6, True), (0.7, 0.8, False)]
)
def test_the_first_evaluation_of_a_group_does_not_count_and_no_other_counts_twice(
    calm: float, hot: float, *, slow: bool
) -> None:
    group = Seen(interval=60.0)
    for at, seconds, phase in (
        ("a", 9.0, CALM),
        ("a", 9.0, CALM),
        ("b", calm, CALM),
        ("b", calm, CALM),
        ("c", hot, HOT),
    ):
        group.note(at, seconds, phase)
    assert (group.first, group.times) == (9.0, {CALM: [calm], HOT: [hot]})
    assert group.too_slow(250) is slow


def cost(count: int, profile: str, *queues: str) -> Cost:
    """A run of a Prometheus that takes 100 MiB, and 4 KiB per series."""
    series = count * (1 + PROFILES.index(profile)) * 1000
    return Cost(
        hosts=count,
        profile=profile,
        page_series=900,
        series=series,
        samples_per_second=series / 15,
        peak_bytes=100 * MIB + 4096 * series,
        cores=count / 1e3,
        evaluation=(count / 1e4, "gpu-triage-load"),
        complete=True,
        writes={name: Write(count, count * 1e4, 0, 1.0) for name in queues},
    )


def test_a_fleet_is_extrapolated_from_runs_that_are_comparable() -> None:
    costs = [*(cost(250, each, RECORDED) for each in PROFILES), cost(1000, DEFAULT), cost(250, DEFAULT, EVERYTHING)]
    fleet = Fleet(costs, dict.fromkeys(PROFILES, Block(1_000_000, 1_300_000)))
    assert (fleet.memory.slope, fleet.memory.intercept) == pytest.approx((4096, 100 * MIB))
    per_host = fleet.largest(DEFAULT).series / 1000
    fits = ((8 << 30) - 100 * MIB) / 4096 / per_host
    assert fits * 0.9 < fleet.hosts_within(DEFAULT, 8 << 30) <= fits
    assert "| 250 | `rules` | 250,000 |" in "\n".join(fleet.tables())
    pages = {name: list(lines) for name, lines in fleet.sizing().items()}
    assert pages["remote-write"][2:] == ["| recorded | 10.0 |", "| everything | 10.0 |"]
    assert len(pages["hosts"]) == 6


def test_raw_series_that_are_sent_are_those_that_dashboards_read() -> None:
    chosen, dashboards = (set(sent()[name].split("|")) for name in (CHOSEN, DASHBOARDS))
    assert {"gpu_verdict", "gpu_info", "up"} <= chosen < dashboards


def test_a_benchmark_replaces_its_section_and_no_other(tmp_path: Path) -> None:
    page = tmp_path / BENCHMARKS.name
    page.write_text(BENCHMARKS.read_text())
    report("soak", table([{"a<": 1, "b": 2}]), to_screen=False, page=page)
    before, after = (path.read_text().partition("<!-- soak -->") for path in (BENCHMARKS, page))
    assert after[0] == before[0]
    assert after[2].startswith("\n\n| a | b |\n|---|---:|\n| 1 | 2 |\n\n<!-- /soak -->\n")
    with pytest.raises(ValueError, match="no markers for other"):
        report("other", [], to_screen=False, page=page)
