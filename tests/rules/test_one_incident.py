"""One incident is one alert, whatever happens to the scrapes of it: findings through the relaying rules.

Whether the judge says so is tested in tests/unit/judge; what Alertmanager makes of a restart, in tests/e2e.
"""

import math
from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from types import MappingProxyType
from typing import Final

import pytest
from tests.conftest import RequiresTool
from tests.gathered import every
from tests.parts import some
from tests.promql.promtool import Labels, Run, ask, selector
from tests.rig import pair_with, three_with
from tests.rules.examine import run_of
from tests.rules.handwritten import FIRING, Series
from tests.rules.rulefile import alert_files, groups_of

from gpu_triage.judge.findings.finding import State
from gpu_triage.judge.findings.table import BY_CODE
from gpu_triage_simulator.history import record_history

pytestmark = pytest.mark.slow

MINUTE = 60.0
BEGAN_AT, CONFIRMED_AT, ENDED_AT, ABSENT_AT, END = (minute * MINUTE for minute in (2, 22, 90, 110, 115))
RESTARTED = (40 * MINUTE, 42 * MINUTE)
GAP = (40 * MINUTE, 54 * MINUTE)
DIED_AT = 60 * MINUTE
INTERVALS_SECONDS = (15, 30, 60)
"""Of scrapes: those that the rules are for."""

CODES: Final = ("memory.row_remap_pending", "storage.nvme")
"""A finding about a GPU, and one about a host."""
OF_GPU: Final = MappingProxyType({"uuid": "GPU-3"})
MINUTES_JUDGED: Final = 11
"""So far back does the judge look for heat, and more."""
HEAT: Final = BY_CODE["thermal.hw"]
DOWN: Final = "GpuExporterDown"


def _always(_number: int, _at: float) -> bool:
    return True


def _no_labels(_at: float) -> Labels:
    return {}


@dataclass(frozen=True, slots=True)
class Scrapes:
    """What happens to the scrapes of one host."""

    # whether the exporter answers the scrape of this number, at this second
    answered: Callable[[int, float], bool] = _always
    gap: tuple[float, float] = (0.0, 0.0)  # from second to second, when nothing is scraped at all, not even `up`
    target: Callable[[float], Labels] = _no_labels  # more labels of the target, at a second
    gpu: Callable[[float], str] = lambda _at: "3"  # index of the GPU, at a second


def _down(begin: float, end: float) -> Callable[[int, float], bool]:
    return lambda _number, at: not begin <= at < end


SCRAPES: Mapping[str, Scrapes] = MappingProxyType(
    {
        "all succeed": Scrapes(),
        "one of 50 fails": Scrapes(answered=lambda number, _at: number % 50 != 7),
        "restarted in the wait": Scrapes(answered=_down(12 * MINUTE, 14 * MINUTE)),
        "restarted in the alert": Scrapes(answered=_down(*RESTARTED)),
        "rolled out": Scrapes(
            answered=_down(*RESTARTED), target=lambda at: {"pod": "old" if at < RESTARTED[1] else "new"}
        ),
        "renumbered at a boot": Scrapes(answered=_down(*RESTARTED), gpu=lambda at: "3" if at < RESTARTED[1] else "2"),
        "none for 14 minutes": Scrapes(gap=GAP),
        "died": Scrapes(answered=_down(DIED_AT, math.inf)),
    }
)
ONE_ALERT = tuple(name for name in SCRAPES if name not in {"renumbered at a boot", "died"})
Fired = Callable[..., Mapping[float, list[Labels]]]
"""The alerts of a scrape interval on one host that have one of these names, by the second of each evaluation."""
every_interval = pytest.mark.parametrize("step_seconds", some(INTERVALS_SECONDS, {60}))


def _scraped(
    name: str,
    value: Callable[[float], float],
    labels: Labels = MappingProxyType({}),
    *,
    instance: str,
    scrapes: Scrapes,
    step_seconds: float,
) -> Series:
    """The series of a metric: one for each set of labels that the target and the GPU have."""
    steps = round(END / step_seconds) + 1
    found: dict[str, list[float]] = {}
    for number in range(steps):
        at = number * step_seconds
        if scrapes.gap[0] <= at < scrapes.gap[1] or (name != "up" and not scrapes.answered(number, at)):
            continue
        own = {"cluster": "west", "instance": instance, "job": "gpu-triage", **scrapes.target(at), **labels}
        if "uuid" in labels:
            own["gpu"] = scrapes.gpu(at)
        found.setdefault(selector(name, own.items()), [math.nan] * steps)[number] = value(at)
    return found


def _state(at: float) -> float:
    if not BEGAN_AT <= at < ABSENT_AT:
        return math.nan
    if at >= ENDED_AT:
        return float(State.ENDED)
    return float(State.CONFIRMED if at >= CONFIRMED_AT else State.PENDING)


def _host(instance: str, scrapes: Scrapes, step_seconds: float) -> Iterator[Series]:
    answers = partial(_scraped, instance=instance, scrapes=scrapes, step_seconds=step_seconds)
    yield answers("up", lambda at: float(scrapes.answered(round(at / step_seconds), at)))
    yield answers("gpu_exporter_time_seconds", lambda at: at)
    yield answers("gpu_up", lambda _at: 1.0, OF_GPU)
    for check in map(BY_CODE.__getitem__, CODES):
        facts = {"code": check.code, "severity": check.severity.value, "action": check.action.value}
        if check.of_host:
            yield answers("gpu_host_finding", _state, facts)
        else:
            yield answers("gpu_finding", _state, {**OF_GPU, **facts})


def _series(step_seconds: float) -> Series:
    """What is scraped of a host for each of SCRAPES, whose name is its instance."""
    return dict(ChainMap(*(dict(s) for name, each in SCRAPES.items() for s in _host(name, each, step_seconds))))


@pytest.fixture(scope="module")
def fired(requires_tool: RequiresTool, tmp_path_factory: pytest.TempPathFactory) -> Fired:
    promtool, directory = requires_tool("promtool"), tmp_path_factory.mktemp("incidents")

    @cache
    def all_of(step_seconds: int) -> Mapping[float, tuple[Labels, ...]]:
        ends = tuple((FIRING, number * MINUTE) for number in range(round(END / MINUTE) + 1))
        rules = alert_files()
        run = Run(rules, groups_of(rules), step_seconds, _series(step_seconds), ends, evaluation_seconds=MINUTE)
        answers = ask(promtool, run, directory)
        return {at: tuple(each.labels for each in found) for (_, at), found in answers.samples.items()}

    def of(step_seconds: int, instance: str, *names: str) -> Mapping[float, list[Labels]]:
        return {
            at: [each for each in found if each.get("instance") == instance and each["alertname"] in names]
            for at, found in all_of(step_seconds).items()
        }

    return of


def _alert(code: str) -> str:
    alert = BY_CODE[code].alert
    assert alert is not None
    return alert


def _is_due(at: float, step_seconds: float) -> bool:
    return CONFIRMED_AT + step_seconds <= at < ENDED_AT


@every_interval
@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("scrapes", ONE_ALERT)
def test_a_finding_fires_from_its_confirmation_to_its_end_as_one_alert(
    scrapes: str, code: str, step_seconds: int, fired: Fired
) -> None:
    alerts = fired(step_seconds, scrapes, _alert(code))
    fires = {at for at, found in alerts.items() if found}
    assert [at for at in alerts if _is_due(at, step_seconds) and at not in fires] == []
    assert [at for at in sorted(fires) if not CONFIRMED_AT <= at < ENDED_AT + step_seconds] == []
    assert len({tuple(sorted(labels.items())) for found in alerts.values() for labels in found}) == 1


@every_interval
def test_a_gpu_that_gets_another_number_at_a_boot_has_one_alert_at_any_time(step_seconds: int, fired: Fired) -> None:
    alerts = fired(step_seconds, "renumbered at a boot", _alert(CODES[0]))
    assert {
        at: len(found) for at, found in every(alerts.items()) if _is_due(at, step_seconds) and len(found) != 1
    } == {}


@every_interval
@pytest.mark.parametrize("code", CODES)
def test_the_alert_of_a_host_that_dies_stands_until_the_exporter_is_told_to_be_down(
    code: str, step_seconds: int, fired: Fired
) -> None:
    alerts = fired(step_seconds, "died", _alert(code), DOWN).items()
    names = {at: {labels["alertname"] for labels in found} for at, found in alerts if at >= CONFIRMED_AT + step_seconds}
    assert [at for at, told in names.items() if not told] == []
    assert {_alert(code), DOWN} in names.values()
    assert names[END] == {DOWN}


@pytest.mark.full
def test_heat_is_one_alert_though_the_exporter_is_restarted_in_its_wait_and_while_it_fires(
    requires_tool: RequiresTool, tmp_path: Path
) -> None:
    """The exporter itself, on a virtual clock."""
    hot, cool, end = 2, 30, 60
    wait, hold = (round(seconds / MINUTE) for seconds in (HEAT.wait_seconds, HEAT.hold_seconds))
    heat = 'effect = { kind = "thermal_throttle", source = "hw", sm_clock_mhz = 1200 }'
    scenario = pair_with(
        tmp_path,
        "h100-8",
        f'at = "{hot}m"\nuntil = "{cool}m"\ngpu = 0\n{heat}',
        'at = "6m"\neffect = { kind = "exporter_restart" }',
        'at = "18m"\nuntil = "20m"\neffect = { kind = "exporter_down" }',
    )
    history = record_history(scenario, seconds=end * MINUTE, step_seconds=30)
    question = 'ALERTS{alertname="GpuHwThermalThrottling", alertstate="firing"}'
    minutes = tuple((question, number * MINUTE) for number in range(end))
    run = run_of(history, scenario, alert_files()).asking(minutes)
    answers = ask(requires_tool("promtool"), run, tmp_path).samples
    fires = [round(at / MINUTE) for (_, at), found in answers.items() if found]
    assert fires[0] in range(hot + wait, hot + wait + 3)
    assert fires[-1] in range(cool + hold, cool + hold + MINUTES_JUDGED)
    assert fires == list(range(fires[0], fires[-1] + 1))


@pytest.mark.parametrize("known", [1, 0])
def test_each_gpu_that_is_lost_while_the_exporter_restarts_is_a_page_that_says_which(
    requires_tool: RequiresTool, tmp_path: Path, known: int
) -> None:
    """By what the state directory knows of the board in its slot, or by its address if no exporter was there before."""
    lost_at = 2 if known else 0
    scenario = three_with(
        tmp_path,
        "h100-8",
        *(f'at = "{lost_at}m"\ngpu = {gpu}\neffect = {{ kind = "lost" }}' for gpu in (0, 2)),
        *(['at = "1m"\nuntil = "4m"\neffect = { kind = "exporter_down" }'] if known else []),
    )
    history = record_history(scenario, seconds=10 * MINUTE, step_seconds=30)
    shown = (("GpuLost", 10 * MINUTE), ("GpuXidCritical", 10 * MINUTE))
    found = ask(
        requires_tool("promtool"), run_of(history, scenario, alert_files()).asking(alerts=shown), tmp_path
    ).alerts
    for asked in shown:
        labels = {(alert.labels.get("uuid"), alert.labels.get("pci_bus_id")) for alert in found[asked]}
        texts = sorted(alert.annotations["description"].partition(")")[0] for alert in found[asked])
        gpus = [(number, scenario.gpus[number]) for number in (0, 2)]
        if known:
            assert labels == {(gpu.uuid, None) for _, gpu in gpus}
            assert texts == [f"GPU {n} of h100-8 (PCI {g.slot.bus_id}, serial {g.serial}" for n, g in gpus]
        else:
            assert labels == {(None, gpu.slot.bus_id) for _, gpu in gpus}
            assert texts == [f"GPU {n} of h100-8 (PCI {g.slot.bus_id}" for n, g in gpus]
