"""What `make test` runs, and what `make full` runs beyond it: hooks of conftest.py."""

import os
from collections.abc import Container, Generator, Iterable
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import pytest

Value = TypeVar("Value")

TESTS = Path(__file__).parent

FULL = (
    *("dashboards/test_job_dashboard.py", "dashboards/test_watched_scenarios.py", "deploy/test_first_minute.py"),
    *("deploy/test_package_life.py", "deploy/test_packages.py", "deploy/test_release.py", "e2e/test_demo_ends.py"),
    *("e2e/test_fleet_incidents.py", "e2e/test_outages.py", "e2e/test_pythons.py", "e2e/test_rehearsal.py"),
    *("e2e/test_status_page_in_browser.py", "faults/test_driver_at_its_worst.py", "fleet/test_fleet_numbers.py"),
    *("fleet/test_live_", "hostile/test_floods.py", "image/test_image.py", "jobs/", "privilege/"),
    *("rules/test_labels.py", "rules/test_recorded.py", "rules/test_week.py"),
    "unit/cli/fleet/test_quarter.py",
)
"""Files of which `make full` runs all tests, by how their paths begin; of other files it runs those marked `full`."""

ONE_BY_ONE = ("tests/rules/test_scenarios.py", "tests/states/test_states.py")
"""Files whose tests share nothing but recordings, so that any worker may take the next."""

IN_REAL_TIME = (
    *("deploy/test_package_life.py", "deploy/test_slurm", "documents/test_walked_pages.py", "e2e/", "faults/"),
    *("fleet/test_live", "hardware/", "hostile/", "image/", "privilege/", "unit/sampler/"),
)
"""Files whose tests watch real programs or threads do something in time, by how their paths begin."""

NOT_FULL, ONLY_FULL = "not full", "full"
"""The choices of `make test` and `make full`."""


def some(values: Iterable[Value], usual: Container[Value]) -> list[Any]:
    """Parameters of a test: `make test` runs the usual ones, and `make full` all others."""
    return [pytest.param(value, marks=() if value in usual else pytest.mark.full) for value in values]


@cache
def name_of(path: Path) -> str:
    """The path within the folder of tests; "" for any other."""
    return path.relative_to(TESTS).as_posix() if path.is_relative_to(TESTS) else ""


def is_full(path: Path) -> bool:
    """Whether only `make full` runs a file."""
    return name_of(path).startswith(FULL)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """For `make test`, files of which nothing would run are not even imported."""
    left_out = collection_path.is_file() and config.getoption("markexpr") == NOT_FULL and is_full(collection_path)
    return True if left_out else None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark the tests of these files."""
    if is_full(item.path):
        item.add_marker(pytest.mark.full)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Let tests that only compute give way to those whose servers would otherwise be late."""
    if os.geteuid() == 0:  # nobody else could take it back
        os.setpriority(os.PRIO_PROCESS, 0, 0 if name_of(item.path).startswith(IN_REAL_TIME) else 5)
    return (yield)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """As --dist=loadfile, but for the files whose tests need not stay together."""
    from xdist.scheduler import LoadFileScheduling  # noqa: PLC0415 - only where xdist is at work

    class ByFile(LoadFileScheduling):  # type: ignore[misc]  # xdist has no types
        def _split_scope(self, nodeid: str) -> str:
            return nodeid if nodeid.startswith(ONE_BY_ONE) else super()._split_scope(nodeid)

    return ByFile(config, log) if config.getoption("dist") == "loadfile" else None
