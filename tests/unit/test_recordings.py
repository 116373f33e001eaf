"""A recording of a scenario is found stale when a file changes that decides what is in it."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests import recordings
from tests.recordings import PACKAGE

from gpu_triage_simulator.model import MODELS
from gpu_triage_simulator.scenario_file import SCENARIOS

pytestmark = pytest.mark.slow


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
