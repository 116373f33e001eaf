from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conftest import RequiresTool
from tests.dashboards.fleet import record_fleet
from tests.dashboards.jobs import record_jobs
from tests.dashboards.store import Store, serving


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave out what needs Grafana's libraries, unless asked for."""
    return True if collection_path.name == "test_scenes.py" and not config.getoption("long") else None


@pytest.fixture(scope="session")
def store(requires_tool: RequiresTool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    prometheus, promtool = requires_tool("prometheus"), requires_tool("promtool")
    directory = tmp_path_factory.mktemp("store")
    with serving(record_fleet(promtool, directory), prometheus, promtool, directory) as running:
        yield running


@pytest.fixture(scope="session")
def jobs(requires_tool: RequiresTool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    prometheus, promtool = requires_tool("prometheus"), requires_tool("promtool")
    with serving(record_jobs(), prometheus, promtool, tmp_path_factory.mktemp("jobs")) as running:
        yield running
