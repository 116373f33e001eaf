from __future__ import annotations

import pytest

from gpu_triage.catalogue import BUSY_SECONDS, EXPORTER_SIMULATED, POWER, MetricSpec
from gpu_triage.diagnosis.evidence import Recorder
from gpu_triage.machine import Moment
from gpu_triage.sampler.outcomes import Outcome, OutcomeStore

GPU = ("0", "GPU-a")


def recorded(spec: MetricSpec, labels: tuple[str, ...], *readings: tuple[float, float] | None) -> Recorder:
    """A recorder that noted a publication for each reading, of second and value; None withdraws the series."""
    store = OutcomeStore(["some"])
    recorder = Recorder()
    for reading in readings:
        if reading is None:
            store.withdraw("some", "subject")
        else:
            at, value = reading
            sample = spec.sample(value, *labels)
            store.put(Outcome("some", "subject", (sample,), True, (), 0.0, Moment(at, at)))  # noqa: FBT003
        recorder.note(store)
    return recorder


def test_a_counter_has_the_rate_of_its_readings() -> None:
    evidence = recorded(BUSY_SECONDS, GPU, (100, 5), (104, 8), (110, 10)).evidence(10, 0)
    assert evidence.rate(BUSY_SECONDS, gpu="0") == pytest.approx(0.5)


def test_a_reading_that_is_still_published_counts_once() -> None:
    track = recorded(POWER, GPU, (100, 50), (100, 50), (100, 50), (105, 80)).evidence(5, 0).one(POWER)
    assert track is not None
    assert (track.mean, track.low, track.high, track.first, track.last) == (65, 50, 80, 50, 80)


def test_a_counter_read_once_has_no_rate() -> None:
    assert recorded(BUSY_SECONDS, GPU, (100, 5)).evidence(10, 0).rate(BUSY_SECONDS) is None


def test_a_counter_that_was_reset_rises_from_zero() -> None:
    track = recorded(BUSY_SECONDS, GPU, (100, 50), (101, 52), (102, 1)).evidence(2, 0).one(BUSY_SECONDS)
    assert track is not None
    assert track.increase == 3


def test_what_is_withdrawn_is_no_evidence_and_begins_anew_when_it_is_back() -> None:
    gone = recorded(POWER, GPU, (100, 50), None).evidence(1, 0)
    assert (gone.series(POWER), gone.last(POWER)) == ((), None)
    back = recorded(POWER, GPU, (100, 50), None, (102, 70)).evidence(2, 0).one(POWER)
    assert back is not None
    assert (back.first, back.mean) == (70, 70)


def test_series_are_found_by_their_labels() -> None:
    evidence = recorded(POWER, GPU, (1, 50)).evidence(1, 0)
    assert len(evidence.series(POWER, gpu="0")) == 1
    assert evidence.series(POWER, gpu="1") == evidence.series(EXPORTER_SIMULATED) == ()
