"""Lost observation is not idleness: readings that come late show less, and neither a lower share nor a class."""

from collections.abc import Iterator

import pytest
from tests.evidence import evidence_of
from tests.fed import GPU, Fed

from gpu_triage.judge.evidence.gpu import GpuEvidence
from gpu_triage.judge.evidence.thresholds import (
    HELD_BYTES,
    HUNG_SECONDS,
    OBSERVED_SHARE,
    UNKNOWN_SECONDS,
    WINDOW_SECONDS,
)
from gpu_triage.read.gpu.activity import GPU_BUSY_SECONDS_TOTAL, GPU_OBSERVED_SECONDS_TOTAL
from gpu_triage.read.gpu.device_memory import GPU_MEMORY_USED_BYTES
from gpu_triage.read.gpu.power import GPU_POWER_LIMIT_WATTS, GPU_POWER_WATTS
from gpu_triage.read.gpu.presence import GPU_UP
from gpu_triage.read.metrics.metric import Sample
from gpu_triage.read.processes.on_gpu import GPU_PROCESSES

EDGE = 1e-3


def job(busy_seconds: float, observed_seconds: float) -> Iterator[Sample]:
    yield GPU_UP.sample(1, *GPU)
    yield GPU_PROCESSES.sample(1, *GPU, "compute")
    yield GPU_MEMORY_USED_BYTES.sample(HELD_BYTES, *GPU)
    yield GPU_POWER_WATTS.sample(60, *GPU)
    yield GPU_POWER_LIMIT_WATTS.sample(300, *GPU)
    yield GPU_BUSY_SECONDS_TOTAL.sample(busy_seconds, *GPU)
    yield GPU_OBSERVED_SECONDS_TOTAL.sample(observed_seconds, *GPU)


def seen(busy: float, observed: float) -> GpuEvidence:
    """A GPU that was observed for a share of the time, and was busy for a share of that."""
    at = {second: job(second * observed * busy, second * observed) for second in (0.0, 30.0, 60.0)}
    return evidence_of(*at.items()).gpus[0]


@pytest.mark.parametrize("busy", [0.0, 0.3, 0.98])
@pytest.mark.parametrize("observed", [1.0, 0.75, OBSERVED_SHARE])
def test_shares_are_of_the_time_that_was_observed(busy: float, observed: float) -> None:
    gpu = seen(busy, observed)
    assert gpu.busy_share == pytest.approx(busy)
    assert (gpu.unobserved, gpu.under_load) == ("", busy >= 0.2)


@pytest.mark.parametrize("observed", [OBSERVED_SHARE - EDGE, 0.0])
def test_a_window_of_which_most_was_not_observed_shows_no_share(observed: float) -> None:
    gpu = seen(0.98, observed)
    assert gpu.busy_share is None
    assert gpu.unobserved.startswith("not observed")
    assert (gpu.under_load, gpu.loaded, gpu.held_idle) == (False, False, False)


class Observed:
    """A judged GPU, and how much of what it does was observed."""

    def __init__(self) -> None:
        self.fed = Fed(5.0)
        self._busy = self._observed = 0.0

    def run(self, seconds: float, busy: float, observed: float) -> list[str]:
        """Its classes."""
        names: list[str] = []

        def samples(_at: float) -> Iterator[Sample]:
            yield from job(self._busy, self._observed)
            self._busy += 5.0 * busy * observed
            self._observed += 5.0 * observed

        until = self.fed.seconds + seconds
        while self.fed.seconds < until:
            self.fed.see(samples(self.fed.seconds))
            names.append(self.name)
        return names

    @property
    def name(self) -> str:
        assert self.fed.latest is not None
        return self.fed.latest.report.gpus[0].bottleneck.name

    @property
    def because(self) -> str:
        assert self.fed.latest is not None
        return self.fed.latest.report.gpus[0].bottleneck.because


def compute(gpu: Observed) -> None:
    gpu.run(2 * WINDOW_SECONDS, busy=0.98, observed=1.0)
    assert gpu.name == "compute"


def test_a_busy_gpu_stays_so_while_enough_of_it_is_observed() -> None:
    gpu = Observed()
    compute(gpu)
    assert set(gpu.run(300, busy=0.98, observed=OBSERVED_SHARE + 0.05)) == {"compute"}


@pytest.mark.parametrize(("seconds", "name"), [(UNKNOWN_SECONDS, "compute"), (180.0, "unattributed")])
def test_a_gpu_that_nobody_observes_has_no_class_in_the_end(seconds: float, name: str) -> None:
    gpu = Observed()
    compute(gpu)
    gpu.run(seconds, busy=0.98, observed=0.0)
    assert gpu.name == name
    assert gpu.because.startswith("not observed") == (name == "unattributed")
    assert gpu.run(120, busy=0.98, observed=1.0)[-1] == "compute"


@pytest.mark.parametrize(
    ("observed", "hangs"), [pytest.param(1.0, True, id="observed"), pytest.param(0.1, False, id="not observed")]
)
def test_only_a_gpu_that_was_seen_idle_hangs(observed: float, hangs: bool) -> None:  # noqa: FBT001 - a table
    gpu = Observed()
    compute(gpu)
    names = gpu.run(HUNG_SECONDS + 60, busy=0.0, observed=observed)
    assert (names[-1] == "hung") == hangs
    assert ("work.hung" in gpu.fed.codes()) == hangs


def test_a_gap_in_a_hang_does_not_end_it() -> None:
    gpu = Observed()
    compute(gpu)
    gpu.run(90, busy=0.0, observed=1.0)
    gpu.run(20, busy=0.0, observed=0.0)
    assert gpu.run(HUNG_SECONDS, busy=0.0, observed=1.0)[-1] == "hung"
