from __future__ import annotations

import pytest

from gpu_triage.catalogue import BUSY_SECONDS, EXPORTER_SIMULATED, POWER, MetricSpec
from gpu_triage.diagnosis.evidence import Evidence, History
from gpu_triage.machine import Moment
from gpu_triage.sampler.outcomes import Outcome, OutcomeStore

GPU = ("0", "GPU-a")


def seen(
    spec: MetricSpec, labels: tuple[str, ...], *readings: tuple[float, float] | None, window: float = 60.0
) -> Evidence:
    """Evidence of a publication for each reading, of second and value; None withdraws the series."""
    store = OutcomeStore(["some"])
    history = History(window)
    at = 0.0
    for reading in readings:
        if reading is None:
            store.withdraw("some", "subject")
        else:
            at, value = reading
            sample = spec.sample(value, *labels)
            store.put(Outcome("some", "subject", (sample,), True, (), 0.0, Moment(at, at)))  # noqa: FBT003
        history.note(store, Moment(at, at))
    return history.evidence(Moment(at, at))


def test_a_counter_has_the_rate_of_its_readings() -> None:
    evidence = seen(BUSY_SECONDS, GPU, (100, 5), (104, 8), (110, 10))
    assert evidence.rate(BUSY_SECONDS, gpu="0") == pytest.approx(0.5)


def test_a_reading_that_is_still_published_counts_once() -> None:
    track = seen(POWER, GPU, (100, 50), (100, 50), (100, 50), (105, 80)).one(POWER)
    assert track is not None
    assert (track.mean, track.low, track.high, track.first, track.last) == (65, 50, 80, 50, 80)


def test_a_counter_read_once_has_no_rate() -> None:
    assert seen(BUSY_SECONDS, GPU, (100, 5)).rate(BUSY_SECONDS) is None


def test_a_counter_that_was_reset_rises_from_zero() -> None:
    track = seen(BUSY_SECONDS, GPU, (100, 50), (101, 52), (102, 1)).one(BUSY_SECONDS)
    assert track is not None
    assert track.increase == 3


def test_what_is_withdrawn_is_no_evidence_and_begins_anew_when_it_is_back() -> None:
    gone = seen(POWER, GPU, (100, 50), None)
    assert (gone.series(POWER), gone.last(POWER)) == ((), None)
    back = seen(POWER, GPU, (100, 50), None, (102, 70)).one(POWER)
    assert back is not None
    assert (back.first, back.mean) == (70, 70)


def test_series_are_found_by_their_labels() -> None:
    evidence = seen(POWER, GPU, (1, 50))
    assert len(evidence.series(POWER, gpu="0")) == 1
    assert evidence.series(POWER, gpu="1") == evidence.series(EXPORTER_SIMULATED) == ()


def test_only_the_window_counts_from_the_last_reading_before_it() -> None:
    readings = [(float(at), float(at)) for at in range(0, 205, 5)]
    track = seen(BUSY_SECONDS, GPU, *readings, window=62.0).one(BUSY_SECONDS)
    assert track is not None
    assert (track.first, track.last, track.seconds) == (135, 200, 65)


def test_a_part_of_the_window_can_be_asked_for() -> None:
    evidence = seen(POWER, GPU, (0, 10), (30, 10), (50, 100), (60, 100))
    whole, last = evidence.one(POWER), evidence.over(10).one(POWER)
    assert whole is not None
    assert last is not None
    assert (whole.low, last.low, last.mean) == (10, 100, 100)


def test_a_mean_is_over_time_however_few_readings_differ() -> None:
    track = seen(POWER, GPU, *((at, 10.0) for at in range(0, 51, 5)), (60, 70.0)).one(POWER)
    assert track is not None
    assert track.mean == pytest.approx((50 * 10 + 10 * 40) / 60)


def test_a_counter_that_stands_still_for_long_has_risen_within_the_window_only() -> None:
    still = [(float(at), 7.0) for at in range(0, 600, 5)]
    track = seen(BUSY_SECONDS, GPU, *still, (600.0, 9.0)).one(BUSY_SECONDS)
    assert track is not None
    assert (track.increase, track.seconds) == (2, 60)


def test_what_was_read_before_the_host_slept_is_not_of_now() -> None:
    track = seen(BUSY_SECONDS, GPU, (0, 0), (5, 5), (3600, 6), (3605, 11)).one(BUSY_SECONDS)
    assert track is not None
    assert track.rate == pytest.approx(1.0)


def test_the_window_stays_small_however_long_it_runs() -> None:
    moving = [(float(at), float(at)) for at in range(0, 3600, 5)]
    evidence = seen(POWER, GPU, *moving)
    ((_, points),) = evidence._matching(POWER, {})
    assert len(points) <= 2 * (60 // 5 + 2)
