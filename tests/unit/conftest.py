"""What unit tests share."""

import re
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pynvml
import pytest
from tests.captured_cards import FOLDER
from tests.conftest import in_continuous_integration
from tests.host_tree import HostTree
from tests.nvml_bench import Bench, BenchMaker
from tests.recorded import record
from tests.rig import scenario_with

from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.judge.findings.finding import Finding
from gpu_triage.judge.findings.table import BY_CODE
from gpu_triage.judge.host_judge import HostJudge, Judgment
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


@pytest.fixture(scope="session")
def wrong_values() -> Iterator[set[str]]:
    """Findings with unstable details, without a value, or with one that their row does not measure: the alert says NaN.

    No list of hosts shows every way to a finding: the hosts that unit tests judge show them all.
    """
    wrong: set[str] = set()
    judge = HostJudge.judge

    def judging(
        self: HostJudge, host: HostEvidence, error: str | None = None, more: Iterable[Finding] = ()
    ) -> Judgment:
        judgment = judge(self, host, error, more)
        wrong.update(
            f"{each.check.code}, value {each.value}: {each.measured}"
            for each in judgment.report.findings
            if (each.value is None) == (BY_CODE[each.check.code].measure is not None)
            # It would be a new series at each judgment.
            or re.search(r"\bago\b|\d (s|min|h)\b|MiB", each.detail)
        )
        return judgment

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HostJudge, "judge", judging)
        yield wrong


@pytest.fixture(autouse=True)
def findings_have_the_values_that_their_rows_measure(wrong_values: set[str]) -> Iterator[None]:
    wrong_values.clear()
    yield
    if wrong_values:
        pytest.fail("\n".join(sorted(wrong_values)))
