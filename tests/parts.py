"""What `make test` runs, what `make full` runs beyond it, and what their last lines say: hooks of conftest.py."""

import os
import time
from collections import defaultdict
from collections.abc import Container, Generator, Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import pytest

Value = TypeVar("Value")

TESTS = Path(__file__).parent

FULL = {
    "dashboards/test_job_dashboard.py": "the dashboard of a job",
    "dashboards/test_two_clusters.py": "the dashboards over two clusters",
    "dashboards/test_watched_scenarios.py": "the dashboards over a fleet of scenarios",
    "deploy/test_first_minute.py": "the three paths of the README, in commands and seconds",
    "deploy/test_package_life.py": "packages in the life of a host, with systemd",
    "deploy/test_packages.py": "the deb and the rpm",
    "deploy/test_slurm_live.py": "a real Slurm",
    "e2e/test_alerting.py": "a night through Prometheus and Alertmanager",
    "e2e/test_demo_ends.py": "the demo",
    "e2e/test_fleet_incidents.py": "what strikes many hosts at once",
    "e2e/test_outages.py": "outages of Prometheus and Alertmanager",
    "e2e/test_pythons.py": "every supported Python",
    "e2e/test_rehearsal.py": "the pager's rehearsal",
    "e2e/test_status_page_in_browser.py": "the status page in a browser",
    "faults/test_driver_at_its_worst.py": "daemons over a driver that hangs in real time",
    "fleet/test_fleet_numbers.py": "shards and VictoriaMetrics, number by number",
    "fleet/test_live_": "live shards, a pair of servers, agents and VictoriaMetrics",
    "hostile/test_floods.py": "floods of connections",
    "image/test_image.py": "the image, built by buildah",
    "jobs/": "a job's answer, from Prometheus and from VictoriaMetrics",
    "privilege/": "the daemon without privileges",
    "rules/test_labels.py": "two clusters, replicas and edited labels",
    "rules/test_recorded.py": "what is recorded of a host of eight",
    "rules/test_simulated_jobs.py": "jobs of several hosts, simulated",
    "rules/test_week.py": "six hours of healthy hosts",
}
"""Files of which `make full` runs all tests, by how their paths begin; of other files it runs those marked `full`."""

OF_OTHER_FILES = (
    "all other scenarios, and the cover scraped every 30 s",
    "all other rows of the fault matrix",
    "all other states of a machine, and how steady classes are",
)
"""What most of the tests marked `full` in other files are."""

ONE_BY_ONE = ("tests/rules/test_scenarios.py", "tests/states/test_states.py")
"""Files whose tests share nothing but recordings, so that any worker may take the next."""

IN_REAL_TIME = (
    "dashboards/test_scenes.py",
    "deploy/test_package_life.py",
    "deploy/test_slurm",
    "e2e/",
    "faults/",
    "fleet/test_live",
    "hostile/",
    "image/",
    "privilege/",
    "unit/sampler/",
)
"""Files whose tests watch real programs or threads do something in time, by how their paths begin."""

GIVES_WAY_BY = 5
"""The niceness of all other tests."""

NOT_FULL, ONLY_FULL = "not full", "full"
"""The choices of `make test` and `make full`."""

FRESH_SINCE = "TEST_RECORDED_SINCE"
"""The Unix time before which no recording of a scenario counts: set by ``--fresh``, for all workers."""

TOLD = "first minute"
"""The property of a test whose value is printed in the end, with or without workers."""

SECONDS_BEFORE = "TEST_SECONDS_BEFORE"
"""What the Makefile did before pytest, and for how long, for the last lines."""


def some(values: Iterable[Value], usual: Container[Value]) -> list[Any]:
    """Parameters of a test: `make test` runs the usual ones, and `make full` all others."""
    return [pytest.param(value, marks=() if value in usual else pytest.mark.full) for value in values]


@cache
def name_of(path: Path) -> str:
    """The path within the folder of tests; "" for any other."""
    return path.relative_to(TESTS).as_posix() if path.is_relative_to(TESTS) else ""


@cache
def full_part(path: Path) -> str | None:
    """What a file tests that only `make full` runs; None for every other file."""
    return next((what for start, what in FULL.items() if name_of(path).startswith(start)), None)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """For `make test`, files of which nothing would run are not even imported."""
    left_out = collection_path.is_file() and config.getoption("markexpr") == NOT_FULL and full_part(collection_path)
    return True if left_out else None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests of these files."""
    if full_part(item.path):
        item.add_marker(pytest.mark.full)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Let tests that only compute give way to those whose servers would otherwise be late."""
    if os.geteuid() == 0:  # nobody else could take it back
        os.setpriority(os.PRIO_PROCESS, 0, 0 if name_of(item.path).startswith(IN_REAL_TIME) else GIVES_WAY_BY)
    return (yield)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """As --dist=loadfile, but for the files whose tests need not stay together."""
    from xdist.scheduler import LoadFileScheduling  # noqa: PLC0415 - only where xdist is at work

    class ByFile(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
        def _split_scope(self, nodeid: str) -> str:
            return nodeid if nodeid.startswith(ONE_BY_ONE) else super()._split_scope(nodeid)

    return ByFile(config, log) if config.getoption("dist") == "loadfile" else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Say what ran, how long each part took, and what is left to `make full`."""
    reports = [report for report in terminalreporter.stats.get("passed", ()) if report.when == "call"]
    told = [value for report in reports for name, value in report.user_properties if name == TOLD]
    if told:
        terminalreporter.section(TOLD)
        terminalreporter.write("".join(f"{line}\n" for line in told))
    chosen = config.getoption("markexpr")
    if chosen in (NOT_FULL, ONLY_FULL) and not config.getoption("collectonly"):
        terminalreporter.section("what ran")
        terminalreporter.write("".join(f"{line}\n" for line in _summary(terminalreporter, chosen)))


def _summary(reporter: pytest.TerminalReporter, chosen: str) -> Iterator[str]:
    if os.environ.get(SECONDS_BEFORE):
        yield f"{os.environ[SECONDS_BEFORE]} before the tests"
    tests: dict[str, set[str]] = defaultdict(set)
    seconds: dict[str, float] = defaultdict(float)
    for reports in reporter.stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport):
                part = "/".join(report.nodeid.split("::")[0].split("/")[:2])
                tests[part].add(report.nodeid)
                seconds[part] += report.duration
    for part in sorted(tests, key=lambda part: -seconds[part]):
        yield f"{part:<18} {len(tests[part]):>6} tests {seconds[part]:>7.0f} s of a worker"
    if chosen == NOT_FULL:
        yield "`make full` runs what is beyond this:"
        yield from (f"  {what}" for what in (*OF_OTHER_FILES, *FULL.values()))
    else:
        yield "`make test` runs everything else; tests/rules --long weeks of healthy hosts, and all scenarios every 5 s"


def pytest_configure(config: pytest.Config) -> None:
    """With --fresh, tell every worker from when on recordings count."""
    if config.getoption("--fresh"):
        os.environ.setdefault(FRESH_SINCE, str(time.time()))
