"""Every row of the fault matrix is staged: `make test` plays some of the rows, `make full` all others."""

import dataclasses
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import cache
from random import Random
from types import MappingProxyType

import pytest
from tests.faults import page as pages
from tests.faults import (
    rows_answers,
    rows_calls,
    rows_driver,
    rows_files,
    rows_gpus,
    rows_host,
    rows_links,
    rows_mig,
    rows_slow,
    rows_xid,
)
from tests.faults.hosts import HOSTS
from tests.faults.page import Difference, Page, difference, labels_of, name_of, readings
from tests.faults.row import ALL_WELL, DRIVER, HOST, OTHERS, Row, Says, Seen, agrees, call_in_flight
from tests.faults.rows_calls import ONE_CALL, ONE_CODE
from tests.faults.rows_driver import COUNT, HANDLE, INIT
from tests.faults.rows_files import FILES
from tests.faults.stage import Stage, Twin, staged
from tests.parts import some

from gpu_triage.judge.evidence import thresholds
from gpu_triage.options.config import Config
from gpu_triage.read.gpu.pcie import GPU_PCIE_RECEIVE_BYTES_TOTAL, GPU_PCIE_TRANSMIT_BYTES_TOTAL
from gpu_triage.read.gpu.topology import GPU_P2P_PEERS
from gpu_triage_simulator import Scenario

ROWS: tuple[Row, ...] = (
    *rows_driver.rows(),
    *rows_gpus.rows(),
    *rows_slow.rows(),
    *rows_calls.rows(),
    *rows_answers.rows(),
    *rows_links.rows(),
    *rows_mig.rows(),
    *rows_xid.rows(),
    *rows_files.rows(),
    *rows_host.rows(),
)
"""A new row is a `Row` in the module of its subject: what begins the fault (an injection, a damaged file or a
scenario's event), what the page must say, and whose series it may cost. Calls that readers make have theirs by
themselves."""

_WHOLE = frozenset({INIT, COUNT, HANDLE})


def default_samples(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Some of the rows, in their order, that `make test` has time for: about a seventh.

    Every way to reach the driver fails with every kind of code. Of each other group, one row by chance: of the calls of
    each collector, each kind of code, each damage of a file, or each moment, where rows share a stage; and of those
    that need their own.
    """
    one_of_each = {_case(row): row.key for row in Random(1).sample(rows, len(rows))}
    chosen = frozenset(one_of_each.values())
    return tuple(row for row in rows if row.group in _WHOLE or row.key in chosen)


def _case(row: Row) -> Hashable:
    """What `make test` plays once."""
    if not row.shared:
        return row.group
    if row.group == ONE_CALL:
        return row.group, str(row.says)
    return row.group, row.fault if row.group in {ONE_CODE, FILES} else row.moment


BRIEF = default_samples(ROWS)

_HORIZON_SECONDS = 60
_BEAT_SECONDS = 6
"""How far the beat of the medium tier may move, and one more."""

JUDGED_HISTORY: Mapping[str, str] = MappingProxyType(
    {"gpu_xid_last_timestamp_seconds": "xid.", "gpu_xid_unassigned_last_timestamp_seconds": "xid."}
)
"""How the codes of findings begin that go by metrics of what happened, and outlast the fault with them."""

_OF_THE_DRIVER = {"gpu_devices", "gpu_driver_info"}
_OF_EACH_GPU = {GPU_P2P_PEERS.name, GPU_PCIE_RECEIVE_BYTES_TOTAL.name, GPU_PCIE_TRANSMIT_BYTES_TOTAL.name}
"""A count of other GPUs; and traffic between samples of an NVML session, which is opened anew for all of them."""


@cache
def scenario_of(host: str) -> Scenario:
    return HOSTS[host]()


@cache
def twin_of(host: str, config: Config) -> Twin:
    return Twin(scenario_of(host), config, _seconds_needed(host, config))


def _seconds_needed(host: str, config: Config) -> int:
    """How long a twin must live: as long as the last of its rows is looked at."""
    rows = [row for row in ROWS if (row.twin, row.config) == (host, config)]
    alone = (row.at + row.lasts + row.recovers_within + 2 * _BEAT_SECONDS + 2 for row in rows if not row.shared)
    return max(_HORIZON_SECONDS if any(row.shared for row in rows) else 0, *alone, 0)


class Play:
    def __init__(self, stage: Stage, row: Row, twin: Twin, gpus: Mapping[str, str]) -> None:
        self._stage = stage
        self._row = row
        self._twin = twin
        self._gpus = gpus
        self._lacking: dict[str, float] = {}
        self._counters: dict[str, float] = {}
        self._went_back: set[str] = set()

    def run(self) -> Seen:
        """Play it, from the next second on."""
        row, stage = self._row, self._stage
        before = pages.parsed(stage.page()) if stage.seconds >= 0 else {}
        self._watch(before)
        self._lacking = self._lacking_already(before) if before else {}
        row.begin(stage)
        for _ in range(row.lasts - 1):
            stage.tick()
        page = self._second()
        during = self._compare(page)
        says = said(page, before, self._gpus, restart=stage.sampler.fatal is not None)
        over = row.ends and not says.restart
        row.end(stage)
        recovered = self._recover() if over else None
        left = self._left() if over and recovered is None else ()
        return Seen(
            says=says,
            strayed=(*self._strayed(during), *self._miscounted(page)),
            recovered=recovered,
            went_back=tuple(sorted(self._went_back)),
            left=left,
            lasting=self._lasting() if recovered is not None else (),
        )

    def _second(self) -> Page:
        page = self._stage.second()
        self._watch(page)
        return page

    def _watch(self, page: Page) -> None:
        """Note counters that fall; whatever happens, each GPU has one class."""
        known, judged = (
            sorted(labels["uuid"] for labels, _ in pages.found(page, name)) for name in ("gpu_up", "gpu_bottleneck")
        )
        assert judged in (known, []) if self._stage.sampler.judge_health is None else judged == known
        for series, value in pages.counters(page).items():
            if value < self._counters.get(series, 0.0):
                self._went_back.add(series)
            self._counters[series] = value

    def _compare(self, page: Page) -> Difference:
        now = self._stage.seconds
        beat = _BEAT_SECONDS if self._row.config.sample_medium_seconds > 1 else 0
        around = self._twin.pages[max(0, now - beat) : now + beat + 1]
        return difference(self._readings(page), self._twin.pages[now], around)

    def _readings(self, page: Page) -> Page:
        """The readings of a page, what earlier rows on the stage have cost its counters made up for."""
        return {series: value + self._lacking.get(series, 0.0) for series, value in readings(page).items()}

    def _lacking_already(self, page: Page) -> dict[str, float]:
        changed, now = self._compare(page).changed, readings(page)
        healthy = self._twin.pages[self._stage.seconds]
        return {series: healthy[series] - now[series] for series in changed if name_of(series).endswith("_total")}

    def _recover(self) -> int | None:
        """Seconds until the page is a healthy one and stays so."""
        recovered: int | None = None
        stays = 0 if self._row.shared else _BEAT_SECONDS
        for seconds in range(self._row.recovers_within + stays + 1):
            if not self._healthy(self._second()):
                recovered = None
            elif recovered is None:
                recovered = seconds
            if recovered is not None and seconds >= recovered + stays:
                break
        return recovered if recovered is not None and recovered <= self._row.recovers_within else None

    def _healthy(self, page: Page) -> bool:
        return not self._remaining(page) and said(page, page, self._gpus) == ALL_WELL

    def _remaining(self, page: Page) -> set[str]:
        """Series that are not as on the healthy twin; a counter may lack what nobody could count."""
        now = self._compare(page)
        ours = self._readings(page)
        missed = {series for series in now.changed if self._only_missed(series, ours[series])}
        history = {series for series in now.extra | now.changed if self._is_history(series)}
        unheard = self._row.leaves - {name_of(series) for series in history}
        return (set(now.absent | now.extra | now.changed) - missed - history) | unheard

    def _only_missed(self, series: str, value: float) -> bool:
        healthy = self._twin.pages[self._stage.seconds][series]
        counter = name_of(series).endswith("_total") and bool(self._subjects(series) & self._row.reach)
        return counter and (value < healthy or self._row.inflates)

    def _is_history(self, series: str) -> bool:
        return name_of(series) in self._row.leaves and bool(self._subjects(series) & self._row.reach)

    def _lasting(self) -> tuple[str, ...]:
        """Findings whose conditions hold when the evidence is of the time after the fault alone."""
        # How far the evidence of a judgment may look back.
        for _ in range(round(thresholds.WINDOW_SECONDS) + _BEAT_SECONDS):
            if not self._unexplained():
                break
            self._stage.tick()
        return tuple(sorted(f"{subject}: {code}" for subject, code in self._unexplained()))

    def _unexplained(self) -> set[tuple[str, str]]:
        """Findings whose conditions hold now, on the healthy twin never, and not by the history that the row leaves."""
        history = tuple(codes for metric, codes in JUDGED_HISTORY.items() if metric in self._row.leaves)
        own = self._stage.holding - self._twin.holding
        return {(subject, code) for subject, code in own if not code.startswith(history)}

    def _left(self) -> tuple[str, ...]:
        page = pages.parsed(self._stage.page())
        return (*sorted(self._remaining(page)), str(said(page, page, self._gpus)))

    def _strayed(self, during: Difference) -> tuple[str, ...]:
        """Series that differ although none of their subjects is in reach."""
        differing = during.absent | during.extra | during.changed
        return tuple(sorted(series for series in differing if not self._subjects(series) & self._row.reach))

    def _miscounted(self, page: Page) -> tuple[str, ...]:
        """Xids that the page counts, if they are not those that the row says."""
        found = pages.found(page, "gpu_xid_errors_total")
        counted = {labels["xid"]: value for labels, value in found if value}
        as_said = self._row.xids is None or counted == self._row.xids
        return () if as_said else (f"gpu_xid_errors_total: {counted}",)

    def _subjects(self, series: str) -> frozenset[str]:
        if name_of(series) in _OF_EACH_GPU:
            return frozenset({*self._gpus.values(), OTHERS})
        labels = labels_of(series)
        named = [labels[label] for label in ("uuid", "peer_uuid") if label in labels]
        if named:
            return frozenset(self._gpus.get(uuid, OTHERS) for uuid in named)
        return frozenset({self._owner(series)})

    def _owner(self, series: str) -> str:
        labels = labels_of(series)
        gpu = labels.get("uuid", labels.get("pci_bus_id"))
        if gpu is not None:
            return self._gpus.get(gpu, OTHERS)
        return DRIVER if name_of(series) in _OF_THE_DRIVER or labels.get("source") == "nvml" else HOST


def said(page: Page, before: Page, gpus: Mapping[str, str], *, restart: bool = False) -> Says:
    """What a page says of the exporter's health.

    Args:
        before: the page before the fault: what it counted is not the fault's.
    """
    errors = {labels["uuid"]: labels["error"] for labels, _ in pages.found(page, "gpu_error_info")}
    down = [labels for labels, value in pages.found(page, "gpu_up") if value == 0]
    assert {labels["uuid"] for labels in down} == set(errors), "gpu_error_info is there exactly while gpu_up is 0"
    up = [value for _, value in pages.found(page, "gpu_driver_up")]
    driver = [labels["error"] for labels, _ in pages.found(page, "gpu_driver_error_info")]
    assert bool(driver) == (up == [0.0]), "gpu_driver_error_info is there exactly while gpu_driver_up is 0"
    counted = {
        f"{labels_of(series)['collector']}: {labels_of(series)['error']}"
        for series, value in page.items()
        if name_of(series) == "gpu_exporter_errors_total" and value > before.get(series, 0.0)
    }
    success = pages.found(page, "gpu_exporter_collector_success")
    return Says(
        gpus={gpus.get(labels["uuid"], labels["gpu"]): errors[labels["uuid"]] for labels in down},
        driver=driver[0] if driver else "" if up else "unknown yet",
        errors=frozenset(counted),
        failing=frozenset(labels["collector"] for labels, value in success if value == 0),
        calls=frozenset(
            call_in_flight(labels["collector"], labels["function"])
            for labels, _ in pages.found(page, "gpu_exporter_call_inflight_seconds")
        ),
        restart=restart,
    )


def play_alone(row: Row) -> Seen:
    scenario = scenario_of(row.host)
    scenario = dataclasses.replace(scenario, events=(*scenario.events, *row.events))
    twin = twin_of(row.twin, row.config)
    with staged(scenario, row.config) as stage:
        if row.at:
            stage.until(row.at - 1)
        return Play(stage, row, twin, gpus_of(scenario_of(row.twin))).run()


def play_together(rows: Iterable[Row]) -> dict[str, Seen]:
    """Play rows one after the other, on as few stages as the twin's time allows; by key."""
    seen: dict[str, Seen] = {}
    left = list(rows)
    while left:
        first = left[0]
        twin = twin_of(first.twin, first.config)
        gpus = gpus_of(scenario_of(first.twin))
        with staged(scenario_of(first.host), first.config) as stage:
            stage.until(4)
            usable = True
            while left and usable and _fits(left[0], first, stage):
                row = left.pop(0)
                seen[row.key] = Play(stage, row, twin, gpus).run()
                usable = seen[row.key].recovered is not None
    return seen


def _fits(row: Row, first: Row, stage: Stage) -> bool:
    """Whether a row can be played on the stage made for an earlier one, in the time its twin has left."""
    alike = (row.host, row.twin, row.config) == (first.host, first.twin, first.config)
    return alike and stage.seconds + row.lasts + row.recovers_within + _BEAT_SECONDS + 1 < _HORIZON_SECONDS


def gpus_of(scenario: Scenario) -> dict[str, str]:
    """Index of each GPU by its UUID, and by its address on the bus for where the UUID is not known."""
    by_uuid = {gpu.uuid: str(index) for index, gpu in enumerate(scenario.gpus)}
    return by_uuid | {gpu.slot.bus_id: str(index) for index, gpu in enumerate(scenario.gpus)}


BY_KEY = {row.key: row for row in ROWS}
assert len(BY_KEY) == len(ROWS)

SHARED = tuple(sorted((row for row in ROWS if row.shared), key=lambda row: row not in BRIEF))
"""Those of `make test` first: they are played without the others."""
TOGETHER = 20
"""How many are played for the first test that asks, within its time limit."""


@cache
def together(number: int) -> Mapping[str, Seen]:
    """What was seen of some of the rows that share stages."""
    return play_together(SHARED[number * TOGETHER : (number + 1) * TOGETHER])


@pytest.mark.timeout(600)  # the first row of a stage plays its healthy twin and 20 rows, 16 s of a CPU that may be busy
@pytest.mark.parametrize("key", some(BY_KEY, {row.key for row in BRIEF}))
def test_a_fault_is_told_costs_its_own_and_is_over_when_it_is_over(key: str) -> None:
    row = BY_KEY[key]
    seen = together(SHARED.index(row) // TOGETHER)[key] if row.shared else play_alone(row)
    assert agrees(seen.says, row.says), seen.says
    assert seen.strayed == ()
    assert seen.went_back == ()
    assert seen.left == ()
    assert seen.lasting == ()
