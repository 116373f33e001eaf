"""When a fault on several hosts is one incident of the fleet, and which hosts it mutes: rules in virtual time."""

import math
from collections.abc import Mapping
from typing import Final, NamedTuple

import pytest
from tests.conftest import RequiresTool
from tests.rules.exhibit_series import NOW, RECENTLY, many
from tests.rules.handwritten import Played, Series, host, merged, over, play
from tests.rules.rulefile import alert_files

HEAT: Final = "GpuFleetHwThermalThrottling"
OVER_AT: Final = NOW - 9
NAN: Final = math.nan


class Case(NamedTuple):
    series: Series
    alert: str
    after: int | None  # minutes from the beginning to the alert; None if it never fires


def over_soon(series: Series) -> Series:
    """The same, but that the findings are over at a minute."""
    after = {"gpu_finding": 0.0, "gpu_finding_since_timestamp_seconds": NAN}
    return {
        key: [after.get(key.partition("{")[0], value) if at >= OVER_AT else value for at, value in enumerate(values)]
        for key, values in series.items()
    }


def for_a_minute(series: Series) -> Series:
    """The same, but that the findings were there for a minute, and never confirmed."""
    return {
        key: [
            value if at == RECENTLY + 1 or not key.startswith("gpu_finding") else math.nan
            for at, value in enumerate(values)
        ]
        for key, values in series.items()
    }


CASES: Mapping[str, Case] = {
    "a quarter of a fleet": Case(many("thermal.hw", 4), HEAT, 5),
    "a quarter of a fleet, pending": Case(many("thermal.hw", 4, state=1), HEAT, 5),
    "a quarter of a fleet, for a minute": Case(for_a_minute(many("thermal.hw", 4, state=1)), HEAT, None),
    "brake, for a minute": Case(for_a_minute(many("power.brake", 4, state=1)), "GpuFleetPowerBrake", None),
    "a quarter of a fleet, accepted": Case(many("thermal.hw", 4, state=3), HEAT, None),
    "less than a quarter": Case(many("thermal.hw", 3), HEAT, None),
    "two hosts of four": Case(many("thermal.hw", 2, of=4), HEAT, None),
    "ten hosts of many": Case(many("thermal.hw", 10, of=60), HEAT, 5),
    "nine hosts of many": Case(many("thermal.hw", 9, of=60), HEAT, None),
    "hot for longer": Case(many("thermal.hw", began=RECENTLY - 31), HEAT, None),
    "over": Case(over_soon(many("thermal.hw", 4)), HEAT, 5),
    "warm": Case(many("thermal.sw", 4), "GpuFleetSwThermalThrottling", 20),
    "brake": Case(many("power.brake", 4), "GpuFleetPowerBrake", 3),
    "driver": Case(many("driver.unavailable", 4), "GpuFleetDriverUnavailable", 4),
    "storage": Case(many("storage.not_responding", 4), "GpuFleetStorageDown", 4),
    "fabric": Case(many("fabric.unhealthy", 4), "GpuFleetFabricUnhealthy", 4),
    "network": Case(many("network.port_down", 4), "GpuFleetNetworkDown", 4),
}


@pytest.fixture(scope="module")
def played(requires_tool: RequiresTool, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Played]:
    rules = tuple(path for path in alert_files() if path.name != "alerts-jobs.yml")
    series = {name: case.series for name, case in CASES.items()}
    return play(requires_tool("promtool"), tmp_path_factory.mktemp("many"), rules, series, minutes=NOW + 1, shown={})


@pytest.mark.parametrize("name", CASES)
def test_many_hosts_are_an_incident_from_ten_or_a_quarter_on(name: str, played: Mapping[str, Played]) -> None:
    case = CASES[name]
    expected = [] if case.after is None else list(range(RECENTLY + case.after, NOW + 1))
    assert played[name].minutes(case.alert) == expected


@pytest.mark.parametrize("name", [name for name in CASES if not name.endswith("for a minute")])
def test_exactly_the_hosts_of_an_incident_are_muted_from_its_beginning_on(
    name: str, played: Mapping[str, Played]
) -> None:
    case, muted = CASES[name], played[name].firing.get("GpuInFleetIncident", {})
    if case.after is None:
        assert muted == {}
        return
    affected = {
        key.split('instance="')[1].split('"')[0]
        for key in case.series
        if key.startswith(("gpu_finding{", "gpu_host_finding{"))
    }
    assert {dict(labels)["instance"] for labels in muted} == affected
    # An evaluation later: groups are evaluated one after the other.
    assert {min(minutes) for minutes in muted.values()} == {RECENTLY + 1}


def test_a_host_is_muted_for_a_little_longer_than_its_own_alert_lasts(played: Mapping[str, Played]) -> None:
    own, muted = (max(played["over"].minutes(name)) for name in ("GpuHwThermalThrottling", "GpuInFleetIncident"))
    assert own == OVER_AT - 1
    assert own + 5 <= muted < NOW


DOWN_AT, OK_AT = 10, 71
"""Minutes at which the file server stops to answer, and answers again."""


def outage() -> Series:
    """Hosts that wait for a file server for an hour, and log that once; one of them has no exporter for a while."""
    finding = {"code": "storage.not_responding", "severity": "warning", "action": "fix_host"}
    event = {"kind": "nfs_not_responding", "subject": "nas01"}
    since, every = 60.0 * DOWN_AT, []
    for number in range(1, 17):
        instance, blind = f"10.4.0.{number}:9836", range(40, 50) if number == 1 else range(0)
        series: list[tuple[str, list[tuple[float, int]], dict[str, str]]] = [
            ("gpu_exporter_build_info", [(1, 110)], {}),
            ("gpu_exporter_collector_success", [(1, 110)], {"collector": "host_kernel_log"}),
        ]
        if number <= 4:
            series += [
                ("gpu_host_finding", [(NAN, DOWN_AT), (1, 5), (2, OK_AT + 15 - DOWN_AT), (0, 24)], finding),
                ("gpu_host_finding_since_timestamp_seconds", [(NAN, DOWN_AT), (since, 80), (NAN, 24)], finding),
                (
                    "gpu_host_kernel_event_last_timestamp_seconds",
                    [(NAN, DOWN_AT), (since, OK_AT - DOWN_AT), (NAN, 110 - OK_AT)],
                    event,
                ),
            ]
        every.append(host("up", over((1, 110)), instance))
        for metric, spans, labels in series:
            values = [NAN if at in blind else value for at, value in enumerate(over(*spans))]
            every.append(host(metric, values, instance, **labels))
    return merged(*every)


def test_a_file_server_is_one_page_for_as_long_as_it_is_silent(
    requires_tool: RequiresTool, tmp_path_factory: pytest.TempPathFactory
) -> None:
    rules = tuple(path for path in alert_files() if path.name != "alerts-jobs.yml")
    folder = tmp_path_factory.mktemp("outage")
    played = play(requires_tool("promtool"), folder, rules, {"outage": outage()}, minutes=109, shown={})["outage"]
    told = played.minutes("GpuFleetStorageDown")
    assert told == list(range(told[0], told[-1] + 1)), "one page, not two"
    assert told[0] <= DOWN_AT + 10
    assert OK_AT <= told[-1] <= OK_AT + 6
    # Tasks that hung and GPUs that starved are told for a while after the server is back.
    assert len(played.firing["GpuInFleetIncident"]) == 4
    assert min(max(minutes) for minutes in played.firing["GpuInFleetIncident"].values()) >= OK_AT + 15
