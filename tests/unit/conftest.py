"""What the tests of the hardware's readers and of recordings share."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pynvml
import pytest
from tests.captured_cards import FOLDER
from tests.conftest import in_continuous_integration
from tests.finding_values import (  # noqa: F401 - fixtures, which pytest finds here by their names
    findings_have_the_values_that_their_rows_measure,
    wrong_values,
)
from tests.host_tree import HostTree
from tests.nvml_bench import Bench, BenchMaker
from tests.recorded import record
from tests.rig import scenario_with

from gpu_triage.record.bundle import write_recording
from gpu_triage.record.recording import Recording
from gpu_triage_simulator import Scenario, VirtualClock, load_scenario, simulated_machine

# Nobody gave continuous integration the captures of real cards; where it has them, it compares with them.
collect_ignore = (
    [] if FOLDER.is_dir() or not in_continuous_integration() else ["simulator/test_models_against_cards.py"]
)


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[BenchMaker]:
    """Makes a bench of a shipped scenario and more events, each the body of an ``[[event]]`` table."""
    before = (pynvml.nvmlLib, pynvml._nvmlLib_refcount)
    with ExitStack() as stack:

        def make(scenario: str | Path | Scenario = "dual-a10", *events: str) -> Bench:
            clock = VirtualClock()
            if not isinstance(scenario, Scenario):
                scenario = scenario_with(tmp_path, str(scenario), *events) if events else load_scenario(scenario)
            simulated = stack.enter_context(simulated_machine(scenario, clock=clock))
            return Bench(simulated.machine, clock)

        try:
            yield make
        finally:
            pynvml.nvmlLib, pynvml._nvmlLib_refcount = before
            pynvml._nvmlGetFunctionPointer_cache.clear()


@pytest.fixture(scope="session")
def recording() -> Recording:
    """Some seconds of a host with two A10."""
    return record(load_scenario("dual-a10"))[0]


@pytest.fixture
def recorded(tmp_path: Path, recording: Recording) -> Path:
    """The folder it is written to."""
    write_recording(recording, tmp_path / "recorded")
    return tmp_path / "recorded"


@pytest.fixture
def host(tmp_path: Path) -> HostTree:
    """An empty procfs and sysfs."""
    return HostTree(tmp_path)
