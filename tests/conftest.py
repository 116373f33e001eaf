"""What every test shares: programs that may be missing here, and no skip in continuous integration."""

import gc
import logging
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent

RequiresTool = Callable[[str], Path]
NOT_PUBLIC = "data from outside this repository is missing:"
"""Begins the reason of a skip that continuous integration tolerates."""

os.environ.setdefault("GOGC", "400")
"""promtool and the servers run for seconds: with memory to spare for garbage they need a fifth less of a CPU."""

sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]  # what Python takes as "not installed"
"""jsonschema checks IRIs with it, and importing it takes 1.5 s of each worker; no schema here has an IRI."""

with suppress(ImportError):  # this file also works in a folder of its own
    from tests.parts import (  # noqa: F401 - hooks, which pytest finds here by their names
        pytest_ignore_collect,
        pytest_itemcollected,
        pytest_runtest_protocol,
        pytest_xdist_make_scheduler,
    )

with suppress(ImportError):  # and where only pytest is
    from hypothesis import HealthCheck, settings

    settings.register_profile("busy", deadline=None, suppress_health_check=[HealthCheck.too_slow])
    if os.environ.get("CI") != "true":  # Hypothesis has a profile of its own for that
        settings.load_profile("busy")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let goldens be written instead of compared, and rules be examined for longer than anybody waits for."""
    parser.addoption("--regenerate", action="store_true", help="write what is held against files; run nothing else")
    parser.addoption("--long", action="store_true", help="weeks of all healthy hosts; all scenarios every 5 s")
    parser.addoption("--seeds", type=int, help="how many random hostile hosts to play (tests/faults/test_random.py)")
    parser.addoption("--seed", type=int, help="the one random hostile host to play")


SLOWEST_FIRST = (
    *("e2e/test_rehearsal.py", "e2e/test_outages.py", "faults/", "dashboards/test_watched_scenarios.py"),
    *(
        "dashboards/test_drawn.py",
        "deploy/test_release.py",
        "fleet/test_live",
        "deploy/test_package_life.py",
        "image/test_image.py",
        "e2e/",
        "rules/test_week.py",
    ),
    *("unit/sampler", "golden/", "states/", "rules/test_scenarios.py", "rules/"),
)
"""Files that take minutes, and folders of such, by how long they take.

A worker takes a whole file, so a long one that began last would leave the other workers idle. Those that mostly wait,
as the tests of real servers do, begin early for the same reason.
"""


@pytest.fixture(scope="session")
def regenerate(request: pytest.FixtureRequest) -> bool:
    """Whether to write the files that a test holds its findings against."""
    return bool(request.config.getoption("--regenerate"))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let the slowest files begin first; the order within a file stays. With --regenerate, only what writes is run."""
    if config.getoption("--regenerate"):
        writes = [isinstance(item, pytest.Function) and "regenerate" in item.fixturenames for item in items]
        config.hook.pytest_deselected(items=[item for item, write in zip(items, writes, strict=True) if not write])
        items[:] = [item for item, write in zip(items, writes, strict=True) if write]
    tests = Path(__file__).parent

    @cache
    def place(path: Path) -> int:
        name = path.relative_to(tests).as_posix() if path.is_relative_to(tests) else ""
        return next((at for at, start in enumerate(SLOWEST_FIRST) if name.startswith(start)), len(SLOWEST_FIRST))

    items.sort(key=lambda item: place(item.path))


def pytest_collection_finish() -> None:
    """Let the garbage collector pass over ten thousand collected tests: it would look at them each time it runs."""
    gc.collect()
    gc.freeze()


def in_continuous_integration() -> bool:
    return os.environ.get("CI") == "true"


_IN_MEMORY = Path("/dev/shm")  # noqa: S108 - its subdirectories are made by tempfile


@pytest.fixture(scope="session", autouse=True)
def simulated_files_in_memory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Hundreds of small files of a simulated host change a second: on a disk they cost twice what the exporter does."""
    tmp_path_factory.getbasetemp()  # pytest's own folder, which outlives the session, stays where it is
    before = tempfile.tempdir
    if _IN_MEMORY.is_dir() and shutil.disk_usage(_IN_MEMORY).free > 512 << 20:
        tempfile.tempdir = str(_IN_MEMORY)
    yield
    tempfile.tempdir = before


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """Undoes what a command run in a test did to logging: the next test shall hear what it expects to."""
    loggers = (logging.getLogger(), logging.getLogger("gpu_triage"))
    before = [(each.level, list(each.handlers), each.propagate) for each in loggers]
    yield
    for each, (level, handlers, propagate) in zip(loggers, before, strict=True):
        each.setLevel(level)
        each.propagate = propagate
        each.handlers[:] = [handler for handler in each.handlers if handler in handlers] or handlers


@pytest.fixture(scope="session")
def repository() -> Path:
    return REPOSITORY


@pytest.fixture(scope="session")
def wheel() -> Path:
    from tests.released import built  # noqa: PLC0415 - this file also works in a folder of its own

    (found,) = built("wheel").glob("*.whl")
    return found


@pytest.fixture(scope="session")
def requires_tool() -> RequiresTool:
    """Finds a program, as ``promtool = requires_tool("promtool")``; without it the test is skipped."""

    def require(program: str) -> Path:
        found = shutil.which(program)
        if found is not None:
            return Path(found)
        reason = f"{program} is not installed here; tests/environment/install-servers.sh installs what tests start"
        if in_continuous_integration():
            pytest.fail(reason)
        pytest.skip(reason)

    return require


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """In continuous integration a skipped test has failed: nobody reads the reasons there."""
    report = yield
    if report.skipped and not hasattr(report, "wasxfail"):
        _fail_if_skipped_in_continuous_integration(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    if report.skipped:
        _fail_if_skipped_in_continuous_integration(report)
    return report


def _fail_if_skipped_in_continuous_integration(report: pytest.TestReport | pytest.CollectReport) -> None:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
    if in_continuous_integration() and NOT_PUBLIC not in reason:
        report.outcome = "failed"
        report.longrepr = f"CI=true tolerates no skip: {reason}"
