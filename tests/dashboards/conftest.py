from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.conftest import RequiresTool
from tests.dashboards.fleet import Fleet, record_fleet
from tests.dashboards.jobs import record_jobs
from tests.dashboards.store import Store, serving


def _store_of(record: Callable[[Path, Path], Fleet]) -> Callable[..., Iterator[Store]]:
    def store(requires_tool: RequiresTool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
        prometheus, promtool = requires_tool("prometheus"), requires_tool("promtool")
        directory = tmp_path_factory.mktemp("store")
        with serving(record(promtool, directory), prometheus, promtool, directory) as running:
            yield running

    return pytest.fixture(scope="session")(store)


store, jobs = _store_of(record_fleet), _store_of(record_jobs)
