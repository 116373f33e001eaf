from pathlib import Path

import pytest
from tests.rig import scenario_with

from gpu_triage.errors import ScenarioError
from gpu_triage_simulator import describe_scenario

PAUSE = 'gpu = 1\neffect = { kind = "load", utilization = 0.0 }'
BASE = "rtx-4070-ti-super"


def test_an_event_may_happen_again_and_again_until_it_is_over(tmp_path: Path) -> None:
    times = 'at = "10m"\nuntil = "100m"\nevery = "30m"\nlasts = "90s"'
    scenario = scenario_with(tmp_path, BASE, f"{times}\n{PAUSE}")
    assert [(event.at, event.until, event.gpus) for event in scenario.events] == [
        (600, 690, (1,)),
        (2400, 2490, (1,)),
        (4200, 4290, (1,)),
    ]


def test_the_last_time_ends_with_the_event(tmp_path: Path) -> None:
    times = 'at = 0\nuntil = "31m"\nevery = "30m"\nlasts = "90s"'
    scenario = scenario_with(tmp_path, BASE, f"{times}\n{PAUSE}")
    assert [(event.at, event.until) for event in scenario.events] == [(0, 90), (1800, 1860)]


def test_a_repeated_event_is_described_in_one_line(tmp_path: Path) -> None:
    times = 'at = "10m"\nuntil = "24h"\nevery = "30m"\nlasts = "90s"'
    once = 'at = "5m"\nuntil = "6m"\ngpu = 1\neffect = { kind = "load", utilization = 0.5 }'
    lines = describe_scenario(scenario_with(tmp_path, BASE, f"{times}\n{PAUSE}", once)).splitlines()
    assert lines[-2:] == [
        "  10m to 1421m30s, every 30m for 1m30s GPU 1: load (utilization=0.0)",
        "  5m to 6m           GPU 1: load (utilization=0.5)",
    ]


@pytest.mark.parametrize(
    ("times", "message"),
    [
        ('at = 0\nuntil = "1h"\nevery = "10m"', "event[1]: every and lasts belong together"),
        ('at = 0\nuntil = "1h"\nlasts = "10m"', "event[1]: every and lasts belong together"),
        ('at = 0\nevery = "10m"\nlasts = "1m"', "event[1]: every needs until"),
        ('at = 0\nuntil = "1h"\nevery = "10m"\nlasts = "10m"', "event[1].lasts: should be shorter than every"),
        ('at = 0\nuntil = "1h"\nevery = "10m"\nlasts = 0', "event[1].lasts: should be shorter than every, and not 0"),
        ('at = 0\nuntil = "1h"\nevery = "10 min"\nlasts = 0', "event[1].every: is '10 min'; write a duration"),
        ('at = 0\nuntil = "1d"\nevery = "20s"\nlasts = 5', "event[1].every: happens more than 1000 times"),
    ],
)
def test_wrong_times_say_what_would_be_right(tmp_path: Path, times: str, message: str) -> None:
    fine = 'at = 0\nuntil = "1h"\nevery = "10m"\nlasts = "1m"\neffect = { kind = "cpu", iowait = 0.1 }'
    with pytest.raises(ScenarioError) as error:
        scenario_with(tmp_path, BASE, fine, f"{times}\n{PAUSE}")
    assert message in str(error.value)


def test_what_is_wrong_with_an_effect_names_the_event_as_the_file_has_it(tmp_path: Path) -> None:
    fine = 'at = 0\nuntil = "1h"\nevery = "10m"\nlasts = "1m"\neffect = { kind = "cpu", iowait = 0.1 }'
    with pytest.raises(ScenarioError, match=r"event\[1\]\.effect\.device: no 'sda'"):
        scenario_with(tmp_path, BASE, fine, 'at = 0\neffect = { kind = "disk", device = "sda" }')


def test_what_happens_in_a_moment_cannot_be_repeated(tmp_path: Path) -> None:
    times = 'at = 0\nuntil = "1h"\nevery = "10m"\nlasts = "1m"\neffect = { kind = "exporter_restart" }'
    with pytest.raises(ScenarioError, match=r"event\[0\]: happens in a moment"):
        scenario_with(tmp_path, BASE, times)
