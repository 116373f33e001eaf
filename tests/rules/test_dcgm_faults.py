"""What rules/compat/dcgm.yml makes of GPUs that die, vanish or get slow, and what it leaves alone."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate

import pytest
from tests.conftest import RequiresTool
from tests.gathered import for_each
from tests.promql.promtool import selector
from tests.rules.handwritten import Played, Series, over, play
from tests.rules.rulefile import REPOSITORY

RULES = (REPOSITORY / "rules" / "compat" / "dcgm.yml", REPOSITORY / "rules" / "alerts-findings.yml")
MINUTES, ONSET = 170, 30
PROMPT, SLOW_PROMPT = 15, {"GpuStraggler": 25, "GpuSwThermalThrottling": 45}
"""Minutes within which a fault is told, and what slows a GPU down, if it comes and goes."""
END = MINUTES - 1
GONE = math.nan
MODEL = "NVIDIA A100-SXM4-80GB"

Values = Mapping[str, Sequence[float]]


def at_work(
    clock: float = 1410, watts: float = 250, heat: float = 46, busy: float = 95, **changed: Sequence[float]
) -> Values:
    """Fields of dcgm-exporter's default list of a GPU at work, a value a minute."""
    moving = range(MINUTES)
    return {
        "SM_CLOCK": [clock] * MINUTES,
        "GPU_TEMP": [heat + minute % 2 for minute in moving],
        "POWER_USAGE": [watts + minute % 3 for minute in moving],
        "GPU_UTIL": [busy + minute % 4 for minute in moving],
        "FB_USED": [37412.0] * MINUTES,
        "TOTAL_ENERGY_CONSUMPTION": list(accumulate([watts * 60e3] * MINUTES)),
        "XID_ERRORS": [0.0] * MINUTES,
        **changed,
    }


def until(minute: int, before: Values, after: Values) -> Values:
    return {name: [*values[:minute], *after[name][minute:]] for name, values in before.items()}


def then(after: Values) -> Values:
    return until(ONSET, at_work(), after)


def without(values: Values, *names: str) -> Values:
    return {name: [GONE] * MINUTES if name in names else each for name, each in values.items()}


def with_xid(code: float, values: Values) -> Values:
    return {**values, "XID_ERRORS": [code] * MINUTES}


WORKS = at_work()
IDLE = at_work(210, 60, 27, -0.0, GPU_UTIL=[0.0] * MINUTES)
NOTHING = without(WORKS, *WORKS)
STILL = {name: [values[ONSET]] * MINUTES for name, values in WORKS.items()}
FROZEN = without(STILL, "FB_USED", "TOTAL_ENERGY_CONSUMPTION")
"""What dcgm-exporter publishes of a GPU that fell off the bus."""
DEAD = then(with_xid(79, FROZEN))
SLOW = at_work(1110, 223, 77)


@dataclass(frozen=True)
class Case:
    gpus: Sequence[Values]
    fires: Mapping[str, tuple[int, int]] = field(default_factory=dict)  # the only alerts, with the fault's minutes
    models: Sequence[str] = (MODEL,) * 4
    text: str = ""  # a part of its summary or description
    uuids: bool = True
    divided: bool = False  # GPU 1 is split by MIG at the onset: only an instance of it is reported


def board(changed: Values, *others: Values) -> Sequence[Values]:
    return (WORKS, changed, *(others or (WORKS, WORKS)))


def rebooted(minutes: int, *gpus: Values) -> Sequence[Values]:
    """A host that reports nothing for some minutes."""
    return [then(until(ONSET + minutes, NOTHING, gpu)) for gpu in gpus]


LASTS, HEALED = (ONSET, END), (ONSET, 100)
SLOWED, FAILED, LOST = ({alert: LASTS} for alert in ("GpuStraggler", "GpuXidCritical", "GpuBoardLost"))
PERIODIC = {"GpuHwThermalThrottling": 64 + 8, "GpuSwThermalThrottling": 32, "GpuPowerBrake": 128 + 8}
"""Bits of throttle reasons that come and go."""
CASES = {
    "healthy": Case((WORKS, WORKS, IDLE, at_work(1395, 262))),
    "dead": Case(board(DEAD), FAILED, text="Xid 79"),
    "dead, Xids not collected": Case(board(without(then(FROZEN), "XID_ERRORS")), {"GpuLost": LASTS}, text="GPU 1"),
    "dead and healed": Case(board(until(HEALED[1], DEAD, WORKS)), {"GpuXidCritical": HEALED}),
    "dead, then gone": Case(
        board(until(HEALED[1], DEAD, NOTHING)), {"GpuXidCritical": HEALED, "GpuMissing": (HEALED[1] + 11, END)}
    ),
    "dead, without UUIDs": Case(board(DEAD), FAILED, text="GPU 1", uuids=False),
    "memory missing for one scrape in ten minutes": Case(board(then(until(ONSET + 10, FROZEN, WORKS)))),
    "neither memory nor energy collected": Case(
        [with_xid(79, without(STILL, "FB_USED", "TOTAL_ENERGY_CONSUMPTION"))] * 4
    ),
    "no longer collected": Case([then(without(WORKS, "FB_USED", "TOTAL_ENERGY_CONSUMPTION"))] * 4),
    "memory only": Case([without(each, "TOTAL_ENERGY_CONSUMPTION") for each in board(DEAD)], FAILED),
    "board": Case([DEAD] * 4, LOST, text="4"),
    "two of a board, minutes apart": Case(board(DEAD, until(ONSET + 1, WORKS, DEAD), WORKS), LOST, text="2"),
    "board, healed one by one": Case(
        [until(HEALED[1] - 10 * number, DEAD, WORKS) for number in range(4)], {"GpuBoardLost": HEALED}
    ),
    "gap": Case(rebooted(40, *[WORKS] * 4)),
    "lost by a reboot": Case(rebooted(10, WORKS, NOTHING, WORKS, WORKS), {"GpuMissing": (ONSET + 10, END)}, text="1"),
    "boots one by one": Case(rebooted(10, WORKS, WORKS, *[until(ONSET + 18, NOTHING, WORKS)] * 2)),
    "divided by MIG": Case(board(then(NOTHING)), divided=True),
    "drained": Case([then(NOTHING)] * 4),
    "slow": Case(board(then(SLOW)), SLOWED, text="of its siblings 46 °C"),
    "slow, and the others wait": Case(
        [
            then(each)
            for each in (at_work(1095, 110, 31, 20), at_work(105, 145, 92, 96), *[at_work(1095, 95, 30, 20)] * 2)
        ],
        SLOWED,
    ),
    "slow, of two": Case((IDLE, then(at_work(720, 170, 84)), IDLE, WORKS), SLOWED),
    "two with work of their own": Case((IDLE, then(at_work(1095, 100, 40)), IDLE, WORKS)),
    "slow, then idle, then fine": Case(
        board(then(until(60, SLOW, until(90, IDLE, WORKS)))), {"GpuStraggler": (ONSET, 125)}
    ),
    "slow for ten minutes": Case(board(then(until(ONSET + 10, SLOW, WORKS)))),
    "a tenth slower": Case(board(then(at_work(1268, 210, 50))), SLOWED),
    "not a tenth slower": Case(board(then(at_work(1270, 210, 50)))),
    "slower, for a little less power": Case(board(then(at_work(1200, 246, 50))), SLOWED),
    "slower, for as much power": Case(board(at_work(1200, 251, 50))),
    "harder work at its power limit": Case(board(at_work(1110, 400, 60))),
    "lighter work": Case(board(at_work(1095, 77, 38))),
    "lighter work, but throttled": Case(
        board({**at_work(1095, 77, 38), "THERMAL_VIOLATION": [*range(MINUTES)]}), {"GpuStraggler": (0, END)}
    ),
    **{
        f"throttle reason {bits}": Case(board({**WORKS, "CLOCK_THROTTLE_REASONS": [bits] * MINUTES}), fires)
        for bits, fires in ((64 + 8, {"GpuHwThermalThrottling": (0, END)}), (4, {}))
    },
    **{
        f"{alert}, {bad} of ten minutes": Case(
            board({**WORKS, "CLOCK_THROTTLE_REASONS": over((bits, bad), (0, 10 - bad)) * (MINUTES // 10)}),
            {alert: (0, END)} if bad > 1 else {},
        )
        for alert, bits in PERIODIC.items()
        for bad in (8, 5, 4, 1)
    },
    "all capped": Case([at_work(1110, 200)] * 4),
    "another model": Case((WORKS, SLOW, SLOW, WORKS), models=(MODEL, "Tesla V100", "Tesla V100", MODEL)),
    "fatal Xid, idle": Case(board(then(with_xid(48, IDLE))), FAILED),
    "fatal Xid, works again": Case(
        board(then(until(60, with_xid(48, IDLE), with_xid(48, WORKS)))), {"GpuXidCritical": (ONSET, 92)}
    ),
    "fatal Xid before": Case(board(with_xid(48, WORKS))),
    **{f"Xid {code} of a program": Case(board(then(with_xid(code, WORKS)))) for code in (13, 31, 43, 45)},
}


def scraped(name: str, case: Case) -> Series:
    found: dict[str, Sequence[float]] = {}
    for number, (values, model) in enumerate(zip(case.gpus, case.models, strict=True)):
        board = {"gpu": f"{number}", "modelName": model, "job": "dcgm", "instance": "a"}
        board |= {"UUID": f"GPU-{name}-{number}"} if case.uuids else {}
        found |= {selector(f"DCGM_FI_DEV_{metric}", board.items()): each for metric, each in values.items()}
        if case.divided and number == 1:
            heat = over((GONE, ONSET), (40, MINUTES - ONSET))
            found[selector("DCGM_FI_DEV_GPU_TEMP", {**board, "GPU_I_ID": "7"}.items())] = heat
    return found


def assert_told(played: Played, fires: Mapping[str, tuple[int, int]], text: str = "") -> None:
    """That each alert is told in time by one alert, until its fault ends, and nothing else is."""
    assert played.firing.keys() == fires.keys()
    for alert, (onset, end) in fires.items():
        [minutes] = played.firing[alert].values()
        first, last = min(minutes), max(minutes)
        assert onset <= first <= onset + SLOW_PROMPT.get(alert, PROMPT)
        assert len(minutes) == last + 1 - first
        assert end <= last <= end + 17  # An alert outlasts a restart of Prometheus.
        assert all(text in " ".join(each.annotations.values()) for each in played.shown[alert])


@pytest.fixture(scope="module")
def played(requires_tool: RequiresTool, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Played]:
    hosts = {name: scraped(name, case) for name, case in CASES.items()}
    shown = {alert: 80 for case in CASES.values() for alert in case.fires}
    return play(requires_tool("promtool"), tmp_path_factory.mktemp("dcgm"), RULES, hosts, minutes=MINUTES, shown=shown)


@for_each("name", CASES)
def test_a_fault_is_told_in_time_by_one_alert_until_it_ends(name: str, played: Mapping[str, Played]) -> None:
    assert_told(played[name], CASES[name].fires, CASES[name].text)
