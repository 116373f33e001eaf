"""`gpu-triage job` beside VictoriaMetrics says what it says beside Prometheus."""

from collections.abc import Iterator

import pytest
from tests.conftest import RequiresTool
from tests.dashboards.store import Store
from tests.fleet.sharded import victoria_metrics
from tests.jobs.situations import SITUATIONS, Scheduler
from tests.jobs.test_job_command import document, name_of

pytestmark = pytest.mark.timeout(900)  # the first test waits for the jobs to be recorded


@pytest.fixture(scope="module")
def victoria(store: Store, requires_tool: RequiresTool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    directory = tmp_path_factory.mktemp("victoria")
    with victoria_metrics(store.fleet.history, requires_tool("victoria-metrics"), directory, store.fleet) as running:
        yield running


@pytest.mark.parametrize(
    "name", [name_of(each, Scheduler.SLURM) for each in SITUATIONS] + ["hang/train", "4805", "4803"]
)
def test_the_answer_is_the_same(store: Store, victoria: Store, name: str) -> None:
    one, other = document(store, name), document(victoria, name)
    for key in ("do_first", "remarkable", "job", "running", "notes"):
        assert _without_times(one[key]) == _without_times(other[key])
    assert {each["code"] for each in one["findings"]} == {each["code"] for each in other["findings"]}
    assert [each["uuid"] for each in one["gpus"]] == [each["uuid"] for each in other["gpus"]]
    for which in one["gpu_seconds"]["by_class"]:
        expected = pytest.approx(one["gpu_seconds"]["by_class"][which], rel=0.05, abs=120)
        assert other["gpu_seconds"]["by_class"].get(which, 0) == expected
    for reading, value in one["slowest_gpu"]["own"].items():
        assert other["slowest_gpu"]["own"][reading] == pytest.approx(value, rel=0.05, abs=0.02)
    if one["steps"] is not None:
        assert other["steps"]["best_per_second"] == pytest.approx(one["steps"]["best_per_second"], rel=0.1)


def _without_times(value: object) -> object:
    """Servers round the beginning of a range differently."""
    return (
        {key: each for key, each in value.items() if key not in ("start", "end")} if isinstance(value, dict) else value
    )
