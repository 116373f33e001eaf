from collections.abc import Iterator

import pytest
from tests.conftest import RequiresTool
from tests.dashboards.fleet import record_fleet
from tests.dashboards.jobs import record_jobs
from tests.dashboards.store import Store, serving


@pytest.fixture(scope="session")
def store(requires_tool: RequiresTool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    prometheus, promtool = requires_tool("prometheus"), requires_tool("promtool")
    directory = tmp_path_factory.mktemp("store")
    with serving(record_fleet(promtool, directory), prometheus, promtool, directory) as running:
        yield running


@pytest.fixture(scope="session")
def jobs(requires_tool: RequiresTool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    prometheus, promtool = requires_tool("prometheus"), requires_tool("promtool")
    directory = tmp_path_factory.mktemp("jobs")
    with serving(record_jobs(promtool, directory), prometheus, promtool, directory) as running:
        yield running
