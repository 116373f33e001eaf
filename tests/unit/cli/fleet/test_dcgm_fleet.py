"""`gpu-triage fleet` and `job` beside a real Prometheus of hosts that only dcgm-exporter watches."""

import json
from array import array
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from tests.command_line import Run
from tests.conftest import RequiresTool
from tests.dashboards.fleet import STEP_SECONDS, Fleet
from tests.dashboards.store import Store, serving
from tests.jobs.histories import families_of

from gpu_triage_simulator.history import History, SeriesKey

pytestmark = pytest.mark.slow

START_SECONDS, STEPS, LOST_AT = 1_768_435_200.0, 60, 20
SICK, WELL, BARE = "gpu-11:9400", "gpu-12:9400", "gpu-13:9400"
NAN = float("nan")

Column = tuple[SeriesKey, Sequence[float]]


def series(metric: str, instance: str, value: float, labels: Mapping[str, str], since: int = 0) -> Column:
    cluster = "bare" if instance == BARE else "recorded"
    every = {"cluster": cluster, "job": "dcgm-exporter", "instance": instance, **labels}
    return (metric, tuple(sorted(every.items()))), array("d", [NAN] * since + [value] * (STEPS - since))


def scraped() -> Iterator[Column]:
    """What rules/compat/dcgm.yml records of two hosts, and a host of a cluster that did not load it."""
    yield from (series("up", instance, 1, {}) for instance in (SICK, WELL, BARE))
    yield series("DCGM_FI_DEV_GPU_TEMP", BARE, 40, {"gpu": "0", "UUID": "GPU-bare"})
    for instance in (SICK, WELL):
        for gpu in "01":
            own = {"gpu": gpu, "uuid": f"GPU-{instance}-{gpu}", "recorded_from": "dcgm"}
            lost = (instance, gpu) == (SICK, "1")
            yield series("gpu_up", instance, float(not lost), own)
            yield series("gpu_info", instance, 1, own | {"name": "NVIDIA A100-SXM4-40GB"})
            if lost:
                facts = {"code": "gpu.lost", "severity": "critical", "action": "drain"}
                yield series("gpu_finding", instance, 2, own | facts, LOST_AT)


@pytest.fixture(scope="module")
def store(requires_tool: RequiresTool, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    columns = dict(scraped())
    history = History(START_SECONDS, STEP_SECONDS, STEPS, columns, families_of(columns))
    programs = requires_tool("prometheus"), requires_tool("promtool")
    with serving(Fleet(history, {}), *programs, tmp_path_factory.mktemp("dcgm")) as running:
        yield running


def command(run: Run, store: Store, *arguments: str) -> tuple[int, str, str]:
    found = run(*arguments, "--prometheus", f"http://{store.address}", "--at", f"{store.end:.0f}")
    return found.code, found.out, found.err


def test_what_dcgm_tells_is_shown_and_its_silence_is_no_verdict(run: Run, store: Store) -> None:
    code, out, _ = command(run, store, "fleet", "--format", "json")
    found: dict[str, Any] = json.loads(out)
    sick, well = found["hosts"]
    assert code == 1
    assert (sick["instance"], sick["verdict"], sick["by_dcgm"], sick["answers"]) == (SICK, "drain", True, True)
    assert [(each["code"], each["gpu"], each["state"]) for each in sick["findings"]] == [("gpu.lost", "1", "confirmed")]
    assert sick["findings"][0]["since"] == pytest.approx(store.start + LOST_AT * STEP_SECONDS, abs=STEP_SECONDS)
    assert (well["instance"], well["verdict"], well["findings"]) == (WELL, "not_read", [])
    assert [len(host["gpus"]) for host in (sick, well)] == [2, 2]
    assert [each["instance"] for each in found["drain"]] == [SICK]


@pytest.mark.parametrize(("arguments", "code"), [((), 0), (("--fail-on", "warning"), 1)])
def test_a_host_without_findings_is_not_healthy_for_that(
    arguments: tuple[str, ...], code: int, run: Run, store: Store
) -> None:
    found, out, _ = command(run, store, "fleet", "--instance", WELL, *arguments)
    assert (found, out.splitlines()[0]) == (code, "1 host: 1 not read")
    assert "hosts with dcgm-exporter alone: 1; gpu-triage there adds" in out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("fleet", "--cluster", "bare"), "load rules/compat/dcgm.yml"),
        (("job", "4711", "--cluster", "bare"), "load rules/compat/dcgm.yml"),
        (("job", "4711"), "only dcgm-exporter watches these GPUs; install gpu-triage"),
        (("fleet", "--cluster", "north"), "no exporter of gpu-triage matches"),
    ],
)
def test_what_dcgm_cannot_answer_says_what_to_load_or_install(
    arguments: tuple[str, ...], said: str, run: Run, store: Store
) -> None:
    code, _, err = command(run, store, *arguments)
    assert (code, said in err) == (2, True)
