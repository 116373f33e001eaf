"""The parts of the benchmark that can be wrong without anybody noticing."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from tests.bench import fleet, subjects, workload
from tests.bench.environment import wiring
from tests.bench.measure import FULL, Hung, Loaded, Metered, Steady, values_on
from tests.bench.report import Result, StandIn, document
from tests.bench.scrape import Connection, PageSize, Scrapes, merged
from tests.bench.subjects import this_exporter
from tests.bench.workload import Hang
from tests.listening import listening

from gpu_triage_simulator import load_scenario

PIDS = range(5000, 5000 + workload.process_count())
FAST = Scrapes((1.0, 2.0), 0, 1.0)
PAGE = PageSize(series=1600, process_series=200, plain_bytes=200_000, gzip_bytes=20_000)


def test_both_exporters_see_the_pids_of_the_processes_that_really_run(tmp_path: Path) -> None:
    scenario = load_scenario(workload.write_scenario(tmp_path, PIDS))
    assert [process.pid for process in scenario.processes] == list(PIDS)
    assert scenario.events == ()


def test_the_hang_is_on_one_gpu_and_ends(tmp_path: Path) -> None:
    scenario = load_scenario(workload.write_scenario(tmp_path, PIDS, Hang(15, 45)))
    assert [(event.at, event.until, event.gpus) for event in scenario.events] == [(15, 45, (workload.HUNG_GPU,))]


def test_a_scenario_with_another_number_of_processes_is_refused() -> None:
    with pytest.raises(ValueError, match="processes, not 1"):
        workload.scenario_text([1])


def test_a_percentile_is_a_latency_that_was_measured() -> None:
    scrapes = merged(
        [Scrapes(tuple(map(float, range(1, 51))), 1, 2.0), Scrapes(tuple(map(float, range(51, 101))), 2, 3.0)]
    )
    assert [scrapes.percentile_ms(percent) for percent in (50, 99, 100)] == [50.0, 99.0, 100.0]
    assert scrapes.failures == 3
    assert scrapes.per_second == pytest.approx(100 / 3)


def test_without_an_answer_there_is_no_good_latency() -> None:
    assert Scrapes((), 4, 1.0).percentile_ms(50) == float("inf")


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


def test_values_are_those_of_the_metric_and_of_no_longer_name() -> None:
    page = '# HELP a x\na{gpu="0"} 1.5\na{gpu="1"} 2\na_total{gpu="0"} 3\n'
    assert values_on(page, "a") == {'a{gpu="0"}': "1.5", 'a{gpu="1"}': "2"}


def test_the_page_says_which_targets_are_met_and_which_are_not() -> None:
    slow = replace(FAST, latencies_ms=(1.0, 11.0))
    steady = Steady(FAST, 0.025, 240.0, 40 * 2**20, 39 * 2**20, PAGE)
    ours = Result(
        this_exporter("1.0"),
        steady,
        Loaded(slow, FAST, 0.1),
        Hung(FAST, gpus=8, moving=7, stale=0, machine_busy_ratio=0.1),
        Metered(0.020, 0.006, 150.0),
    )
    peer = replace(ours, steady=replace(steady, page=replace(PAGE, series=700)))
    standin = StandIn(3 * 2**20, 0.005, {"judge": 2.0})
    text = document([ours, peer, replace(ours, hung=None, metered=None)], standin, FULL, wiring(["--quick"], 0.5))
    verdicts = re.findall(r"^\| ([^|]+) \|.*\| (\*\*not met\*\*|met) \|$", text, re.MULTILINE)
    assert [verdict == "met" for _, verdict in verdicts] == [True, True, False, False, True, True, True, True, True]
    assert "1600 to 700: 2.3 times; without processes 1400 to 500: 2.8 times" in text
    assert max(map(len, text.splitlines())) <= 200


def test_the_peer_starts_with_nothing_installed_but_what_its_lock_names() -> None:
    pinned = set(subjects.peer_pins())
    others = [
        module
        for module, distributions in packages_distributions().items()
        if not module.startswith(("gpu_triage", "tests"))
        and not pinned & {name.lower().replace("_", "-") for name in distributions}
    ]
    # None in sys.modules stands for a module that is not installed.
    program = f"import sys; sys.modules.update(dict.fromkeys({others!r})); import tests.bench.launch_nvitop"
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=subjects.REPOSITORY,
        env=os.environ | {"PYTHONPATH": subjects.PYTHONPATH},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_every_four_hosts_of_a_fleet_are_one_job() -> None:
    labels = fleet.written({"uuid": "GPU-7c963d6b", "workload_pod": "train-3"})
    assert fleet.of_host(labels, 3) == 'uuid="GPU-00033d6b",workload_pod="train-job0000-3"'
    assert fleet.of_host(labels, 4) == 'uuid="GPU-00043d6b",workload_pod="train-job0001-3"'
