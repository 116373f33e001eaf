"""Scenarios through the rules, and what all of them show together.

`make test` plays the cover, scraped every minute; `make full` most others so, and the cover every 30 s; `--long` all
every 5 s, 15 s and minute.
"""

from dataclasses import replace
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from _pytest.mark import ParameterSet
from tests.conftest import RequiresTool
from tests.promql.vocabulary import CLASSES
from tests.recordings import MARGIN_SECONDS, STEP_SECONDS
from tests.rules.cases import every_name, load_any
from tests.rules.examine import examine
from tests.rules.rulefile import alert_files
from tests.rules.verdict import disagreements, wanted

from gpu_triage.alerting.shipped import shipped_sources
from gpu_triage_simulator import Scenario


class Shown(NamedTuple):
    """One thing that a scenario shows: ("fires", "GpuLost"), ("nearly fires", "GpuLost"), ("is", "sick") …"""

    how: str
    what: str


RELAYS: Final = frozenset(alert.name for source in shipped_sources() for alert in source.alerts if alert.codes)
"""Alerts that relay findings: one rule for all codes, of which test_relay.py shows every branch."""


def shown_by(scenario: Scenario) -> frozenset[Shown]:
    """What a scenario expects: alerts of PromQL that fire or nearly fire, and classes."""
    return frozenset(
        shown
        for each in scenario.expectations
        for shown in (
            *(Shown("fires", alert) for alert in {wanted(one)["alertname"] for one in each.alerts} - RELAYS),
            *(Shown("nearly fires", alert) for alert in each.near_misses if alert not in RELAYS),
            *(Shown("is", bottleneck) for bottleneck in each.bottleneck.values()),
        )
    )


def up_to(seconds: int, scenario: Scenario) -> Scenario:
    """A scenario that ends with its expectation at this time: nothing begins while it is still watched."""
    return replace(
        scenario,
        events=tuple(each for each in scenario.events if not seconds < each.at <= seconds + MARGIN_SECONDS),
        expectations=tuple(each for each in scenario.expectations if each.at <= seconds),
    )


SCENARIOS: Final = {name: load_any(name) for name in every_name()}
UNTIL: Final = {
    "clock-behind": 480,
    "clock-nearly": 720,
    "collective-hang": 1620,
    "exporter": 6840,
    "exporter-blind": 1800,
    "h100-8-bad-night": 1980,
    "held-back": 2220,
    "held-back-not": 3000,
    "memory-no-swap": 1080,
    "miscounted-cap": 1980,
    "numa": 1200,
    "own-pids": 2280,
    "path": 2400,
    "repeat-offender": 480,
    "sick-all": 1200,
    "slow-job": 3480,
    "slow-job-not": 3240,
    "starved": 8100,
}
"""Few and cheap ones that together show all, each with the second of the last expectation that is needed for that."""
COVER: Final = {name: up_to(seconds, SCENARIOS[name]) for name, seconds in UNTIL.items()}
"""Those of every run, as far as it plays them."""

LONGEST, RECORDED, USUAL, SHORTEST = 60, int(STEP_SECONDS), 15, 5
"""Scrape intervals that the rules are for, in seconds."""

NAMES = {alert.name for source in shipped_sources() for alert in source.alerts if alert.enabled}

EXPECTATIONS = [expectation for scenario in SCENARIOS.values() for expectation in scenario.expectations]
ELSEWHERE = {
    "GpuEccSramThreshold": "test_relay.py: no simulated board counts so many",
    "GpuExporterJudgeFailing": "test_alone.py: no simulated fault makes the judge fail",
    "GpuExporterAbsent": "test_alone.py: a scenario has a target",
    "GpuExporterXidDeaf": "test_alone.py: the simulated kernel log can be read",
    "GpuExportersDown": "test_alone.py: it takes more than one host",
    "GpuFleetDriverUnavailable": "test_many_hosts.py: it takes more than one host",
    "GpuFleetFabricUnhealthy": "test_many_hosts.py: likewise",
    "GpuFleetHwThermalThrottling": "test_many_hosts.py: likewise",
    "GpuFleetNetworkDown": "test_many_hosts.py: likewise",
    "GpuFleetPowerBrake": "test_many_hosts.py: likewise",
    "GpuFleetStorageDown": "test_many_hosts.py: likewise",
    "GpuFleetSwThermalThrottling": "test_many_hosts.py: likewise",
    "GpuHostChassisFault": "test_bmc.py: no BMC is simulated",
    "GpuInFleetIncident": "test_many_hosts.py: likewise",
    "GpuDriverVersionDrift": "test_alone.py: it takes two hosts",
    "GpuExporterWebConfigReloadFailed": "test_alone.py: a history has no web server, so no web configuration",
    "GpuExporterJudgeReloadFailed": "test_alone.py: a history is never told to reload",
    "GpuJobHung": "test_job_hangs.py: a scenario is of one host",
    "GpuStragglerAcrossHosts": "test_job_stragglers.py: on its own host GpuStraggler, or its cause, reports it",
    "GpuTriageWatchdog": "it fires at every step of every scenario, or the scenario fails",
}
"""Alerts that no scenario expects, and where they are shown instead."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test for each scenario and interval."""
    if "step_seconds" not in metafunc.fixturenames:
        return
    # What it costs to play one, roughly: GPUs times the time up to its last expectation.
    cost = {name: len(each.gpus) * max(one.at for one in each.expectations) for name, each in SCENARIOS.items()}
    longest_first = sorted(cost, key=lambda name: -cost[name])
    if metafunc.config.getoption("--long"):
        cases = [_case(SCENARIOS[name], step) for name in longest_first for step in (SHORTEST, USUAL, LONGEST)]
    else:
        cases = [_case(COVER[name], LONGEST) for name in longest_first if name in COVER]
        cases += [_case(SCENARIOS[name], _beyond(name), pytest.mark.full) for name in longest_first]
    metafunc.parametrize(("scenario", "step_seconds"), cases)


def _case(scenario: Scenario, step_seconds: int, *marks: pytest.MarkDecorator) -> ParameterSet:
    return pytest.param(scenario, step_seconds, id=f"{scenario.name} every {step_seconds} s", marks=marks)


def _beyond(name: str) -> int:
    """The interval at which `make full` plays a scenario."""
    # Its classes need samples as often as by default; recordings sample only as often as they are scraped.
    if name == "training-day":
        return USUAL
    return RECORDED if name in COVER else LONGEST


@pytest.mark.timeout(900)
def test_the_rules_say_of_a_scenario_what_it_expects_and_nothing_else(
    scenario: Scenario, step_seconds: int, requires_tool: RequiresTool, tmp_path: Path
) -> None:
    promtool = requires_tool("promtool")
    found = examine(scenario, alert_files(), step_seconds=step_seconds, promtool=promtool, directory=tmp_path)
    lines = disagreements(found, scenario.expectations)
    assert not lines, "\n".join([f"{scenario.name} every {step_seconds} s:", *lines])


def test_the_scenarios_of_every_run_show_all_that_is_to_be_shown() -> None:
    shown = frozenset().union(*map(shown_by, COVER.values()))
    assert frozenset().union(*map(shown_by, SCENARIOS.values())) - shown == frozenset()


def test_every_alert_fires_in_a_scenario_and_is_nearly_met_in_one_in_which_it_stays_quiet() -> None:
    fired = {wanted(alert)["alertname"] for expectation in EXPECTATIONS for alert in expectation.alerts}
    missed = {name for expectation in EXPECTATIONS for name in expectation.near_misses}
    assert NAMES - fired == NAMES - missed == set(ELSEWHERE)
    assert (fired | missed) - NAMES == set()


def test_every_class_of_bottleneck_is_seen() -> None:
    seen = {bottleneck for expectation in EXPECTATIONS for bottleneck in expectation.bottleneck.values()}
    assert set(CLASSES) - seen == set()
