"""Scenarios through the rules, and what all of them show together.

`make test` plays the cover, scraped every minute; `make full` most others so, and the cover every 30 s; `--long` all
every 5 s, 15 s and minute.
"""

from pathlib import Path

import pytest
from tests.conftest import RequiresTool
from tests.gathered import every
from tests.promql.vocabulary import CLASSES
from tests.recordings import STEP_SECONDS
from tests.rules.cover import COVER, SCENARIOS, gpu_minutes, shown_by
from tests.rules.examine import examine
from tests.rules.rulefile import alert_files
from tests.rules.verdict import disagreements, wanted

from gpu_triage.alerting.shipped import shipped_sources
from gpu_triage_simulator import Scenario

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
    "GpuInFleetIncident": "test_many_hosts.py: likewise",
    "GpuDriverVersionDrift": "test_alone.py: it takes two hosts",
    "GpuExporterWebConfigReloadFailed": "test_alone.py: a history has no web server, so no web configuration",
    "GpuExporterJudgeReloadFailed": "test_alone.py: a history is never told to reload",
    "GpuJobHung": "test_job_hangs.py: a scenario is of one host",
    "GpuJobSlow": "test_job_pace.py: a scenario has no job that writes its steps",
    "GpuTriageWatchdog": "it fires at every step of every scenario, or the scenario fails",
}
"""Alerts that no scenario expects, and where they are shown instead."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test for each scenario and interval; with --long, of one recording at the shortest one."""
    if "steps_seconds" not in metafunc.fixturenames:
        return
    if metafunc.config.getoption("--long"):
        cases = [pytest.param(each, (SHORTEST, USUAL, LONGEST), id=each.name) for each in SCENARIOS.values()]
    else:
        longest_first = sorted(SCENARIOS, key=lambda name: -gpu_minutes(SCENARIOS[name]))
        usual = [(COVER[name], (LONGEST,)) for name in longest_first if name in COVER]
        beyond = [(SCENARIOS[name], (_beyond(name),)) for name in longest_first]
        cases = [pytest.param(each, steps, id=_id(each.name, steps)) for each, steps in usual]
        cases += [pytest.param(each, steps, id=_id(each.name, steps), marks=pytest.mark.full) for each, steps in beyond]
    metafunc.parametrize(("scenario", "steps_seconds"), cases)


OF_SHORT_BURSTS = {"training-day"}
"""Classes of which need samples as often as by default; recordings sample only as often as they are scraped."""


def _beyond(name: str) -> int:
    """The interval at which `make full` plays a scenario."""
    if name in OF_SHORT_BURSTS:
        return USUAL
    return RECORDED if name in COVER else LONGEST


def _id(name: str, steps_seconds: tuple[int, ...]) -> str:
    return f"{name} every {' and '.join(map(str, steps_seconds))} s"


@pytest.mark.timeout(900)
def test_the_rules_say_of_a_scenario_what_it_expects_and_nothing_else(
    scenario: Scenario, steps_seconds: tuple[int, ...], requires_tool: RequiresTool, tmp_path: Path
) -> None:
    """At the times it says, at every scrape interval."""
    promtool = requires_tool("promtool")
    found = examine(scenario, alert_files(), steps_seconds=steps_seconds, promtool=promtool, directory=tmp_path)
    for step_seconds, examination in every(zip(steps_seconds, found, strict=True)):
        lines = disagreements(examination, scenario.expectations)
        assert not lines, "\n".join([f"{scenario.name} every {step_seconds} s:", *lines])


def test_the_scenarios_of_every_run_show_all_that_is_to_be_shown_and_each_is_needed() -> None:
    shown = {name: shown_by(scenario) for name, scenario in COVER.items()}
    everything = frozenset().union(*map(shown_by, SCENARIOS.values()))
    assert everything - frozenset().union(*shown.values()) == frozenset()
    needless = [
        name
        for name, its in shown.items()
        if its <= frozenset().union(*(others for other, others in shown.items() if other != name))
    ]
    assert needless == []


def test_every_alert_fires_in_a_scenario_and_is_nearly_met_in_one_in_which_it_stays_quiet() -> None:
    fired = {wanted(alert).labels["alertname"] for expectation in EXPECTATIONS for alert in expectation.alerts}
    missed = {name for expectation in EXPECTATIONS for name in expectation.near_misses}
    assert NAMES - fired == NAMES - missed == set(ELSEWHERE)
    assert (fired | missed) - NAMES == set()


def test_every_class_of_bottleneck_is_seen() -> None:
    seen = {bottleneck for expectation in EXPECTATIONS for bottleneck in expectation.bottleneck.values()}
    assert set(CLASSES) - seen == set()
