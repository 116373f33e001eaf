"""Recordings of scenarios are made once, are what they say they are, and are found stale where they are."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests import recordings
from tests.parts import some
from tests.recordings import DRILL, PACKAGE, published, recorded, thinned

from gpu_triage_simulator import load_scenario
from gpu_triage_simulator.history import History, history_config, record_history
from gpu_triage_simulator.model import MODELS
from gpu_triage_simulator.scenario_file import SCENARIOS

pytestmark = pytest.mark.slow

SECONDS = 180.0

LISTING = """
import json, sys
opened = set()
sys.addaudithook(lambda event, args: opened.add(str(args[0])) if event == "open" else None)
from pathlib import Path
from gpu_triage_simulator import load_scenario
from tests.recordings import recorded
recorded(load_scenario("dual-a10"), seconds=60, folder=Path(sys.argv[1]))
print(json.dumps(sorted(opened)))
"""
"""Every file that is opened for a recording, modules and what they read."""


def same(one: History, other: History) -> bool:
    """Whether two histories are equal; NaN, where a sample is missing, is equal to itself."""
    columns = [{name: [repr(value) for value in each.series[name]] for name in each.series} for each in (one, other)]
    heads = [replace(each, series={}) for each in (one, other)]
    return columns[0] == columns[1] and heads[0] == heads[1]


@pytest.mark.parametrize("name", some(["dual-a10", "sick-host"], usual=["dual-a10"]))
def test_a_thinned_recording_is_what_an_exporter_publishes_to_a_slower_scraper(name: str, tmp_path: Path) -> None:
    """One with the same collectors: what they read is evidence, whatever is published."""
    scenario = load_scenario(name)
    usual = history_config(scenario, recordings.STEP_SECONDS)
    collectors = {**usual.collectors, **recordings.OFF_BY_DEFAULT}
    least = replace(usual, collectors=collectors, metrics_profile="rules")
    direct = record_history(scenario, seconds=SECONDS, step_seconds=60, config=least, target=DRILL)
    assert same(published(thinned(recorded(scenario, seconds=SECONDS, folder=tmp_path), 60), least), direct)


def test_every_file_that_is_read_for_a_recording_is_in_the_key(tmp_path: Path, repository: Path) -> None:
    """But for the scenario's own, whose contents are."""
    command = [sys.executable, "-c", LISTING, str(tmp_path)]
    listed = subprocess.run(command, cwd=repository, check=True, capture_output=True, text=True).stdout
    opened = {_source(Path(name)) for name in json.loads(listed) if name.startswith(str(PACKAGE.parent))}
    assert PACKAGE / "sampler" / "sampler.py" in opened
    assert not any("alerting" in path.parts for path in opened)
    assert opened - set(recordings.sources()) == {SCENARIOS / "dual-a10.toml", MODELS / "a10.toml"}


def _source(path: Path) -> Path:
    """The source of a compiled module."""
    return path if path.suffix != ".pyc" else path.parent.parent / f"{path.name.partition('.')[0]}.py"
