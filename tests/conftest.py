"""What every test shares: programs that may be missing here, and no skip in continuous integration."""

from __future__ import annotations

import logging
import os
import shutil
from collections.abc import Callable, Generator, Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent

RequiresTool = Callable[[str], Path]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let goldens be written instead of compared, and rules be examined for longer than anybody waits for."""
    parser.addoption("--regenerate", action="store_true", help="write the golden pages instead of comparing them")
    parser.addoption("--long", action="store_true", help="weeks of all healthy hosts; all scenarios every 5 s")


def in_continuous_integration() -> bool:
    """Whether a skipped test counts as a failure."""
    return os.environ.get("CI") == "true"


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """Undoes what a command run in a test did to logging: the next test shall hear what it expects to."""
    loggers = (logging.getLogger(), logging.getLogger("gpu_triage"))
    before = [(each.level, list(each.handlers)) for each in loggers]
    yield
    for each, (level, handlers) in zip(loggers, before, strict=True):
        each.setLevel(level)
        each.handlers[:] = [handler for handler in each.handlers if handler in handlers] or handlers


@pytest.fixture(scope="session")
def repository() -> Path:
    """The root of the working tree."""
    return REPOSITORY


@pytest.fixture(scope="session")
def wheel(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The distribution."""
    from tests.distribution import build_wheel  # noqa: PLC0415 - this file also works in a folder of its own

    return build_wheel(repository, tmp_path_factory.mktemp("distribution"))


@pytest.fixture(scope="session")
def requires_tool() -> RequiresTool:
    """Finds a program, as ``promtool = requires_tool("promtool")``; without it the test is skipped."""

    def require(program: str) -> Path:
        found = shutil.which(program)
        if found is not None:
            return Path(found)
        reason = f"{program} is not installed here; `make servers` installs what tests start, from Debian"
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
    """As for single tests, for whole modules."""
    report = yield
    if report.skipped:
        _fail_if_skipped_in_continuous_integration(report)
    return report


def _fail_if_skipped_in_continuous_integration(report: pytest.TestReport | pytest.CollectReport) -> None:
    if in_continuous_integration():
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longreprtext
        report.outcome = "failed"
        report.longrepr = f"CI=true tolerates no skip: {reason}"
