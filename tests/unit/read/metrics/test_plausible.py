"""Counters are believed only as fast as the hardware can count: an absurd reading leaves no trace."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.nvml_bench import Bench, BenchMaker, says

from gpu_triage.driver.nvml.inquiry import Inquiry
from gpu_triage.driver.nvml.session import Device
from gpu_triage.read.gpu.nvlink import NvlinkReader
from gpu_triage.read.gpu.pcie import PcieReader
from gpu_triage.read.gpu.pcie_errors import PcieErrorsReader
from gpu_triage.read.gpu.power import PowerReader
from gpu_triage.read.metrics.integrals import ContinuedCounter
from gpu_triage.read.metrics.plausible import BoundedCounter, CounterLimit

ABSURD = 18446744073709551614
LIMIT = CounterLimit(per_second=100.0, most=1e12)


def inquiry() -> Inquiry:
    return Inquiry(Device(0, "GPU-0", None, None))


def altered(nvml: Bench, fields: range, value: int) -> None:
    """The driver says `value` for these fields, and its own for the others."""
    original = nvml.library._base.nvmlDeviceGetFieldValues  # type: ignore[attr-defined]  # any function has a name

    def call(device: Any, count: Any, out: Any) -> int:
        code: int = original(device, count, out)
        for entry in out._obj[: count.value]:
            if entry.fieldId in fields:
                entry.nvmlReturn, entry.valueType, entry.value.ullVal = 0, 3, value
        return code

    nvml.answer("nvmlDeviceGetFieldValues", call)


def test_an_absurd_energy_is_dropped_and_counted_and_the_counter_goes_on(bench: BenchMaker) -> None:
    nvml, reader, joules = bench(), PowerReader(), []
    for millijoules in (5_000_000, 5_100_000, ABSURD, 2**50, 5_200_000, 5_300_000):
        nvml.answer("nvmlDeviceGetTotalEnergyConsumption", says(millijoules))
        round_ = nvml.round()
        joules.append(reader.read(round_).energy_joules)
        assert round_.inquiry.failures == ([] if joules[-1] else ["implausible"])
        nvml.clock.advance(1)
    assert joules == [5000.0, 5100.0, None, None, 5200.0, 5300.0]


def test_an_energy_that_reads_zero_for_a_while_goes_on_from_where_it_was(bench: BenchMaker) -> None:
    nvml, reader, joules = bench(), PowerReader(), []
    for millijoules in (900_000_000, 900_100_000, 0, 0, 0, 0, 900_600_000, 900_700_000):
        nvml.answer("nvmlDeviceGetTotalEnergyConsumption", says(millijoules))
        joules.append(reader.read(nvml.round()).energy_joules)
        nvml.clock.advance(1)
    assert joules == [900_000.0, *[900_100.0] * 5, 900_600.0, 900_700.0]


def test_a_counter_that_was_reset_long_ago_does_not_go_back_to_its_old_level() -> None:
    counter, asked = BoundedCounter(LIMIT, ContinuedCounter()), inquiry()
    values = [counter.add(asked, raw, at) for raw, at in ((50_000, 0), (10, 1), (20, 2), (50_010, 61))]
    assert values == [50_000, 50_000, 50_020, None]
    assert counter.add(asked, 700, 62) == 50_700


def test_an_absurd_first_energy_is_not_believed(bench: BenchMaker) -> None:
    nvml, reader, joules = bench(), PowerReader(), []
    for millijoules in (ABSURD, 5_000_000, 5_100_000):
        nvml.answer("nvmlDeviceGetTotalEnergyConsumption", says(millijoules))
        joules.append(reader.read(nvml.round()).energy_joules)
    assert joules == [None, 5000.0, 5100.0]


def test_an_absurd_count_of_replays_is_dropped(bench: BenchMaker) -> None:
    nvml, reader, replays = bench(), PcieReader(15.0, 60.0), []
    for count in (3, 4_294_967_294, 1_000_000_000, 4, 4):
        nvml.answer("nvmlDeviceGetPcieReplayCounter", says(count))
        replays.append(reader.read(nvml.round()).replays)
        nvml.clock.advance(5)
    assert replays == [3, None, None, 4, 4]


@pytest.mark.parametrize(
    ("fields", "counter"),
    [
        (range(161, 164), lambda link: link.errors.get("replay")),
        (range(161, 164), lambda link: link.errors.get("crc")),
        (range(138, 140), lambda link: link.transmit_bytes),
        (range(138, 140), lambda link: link.receive_bytes),
    ],
)
def test_absurd_counters_of_an_nvlink_link_are_dropped(
    bench: BenchMaker, fields: range, counter: Callable[[Any], float | None]
) -> None:
    nvml, reader = bench("h100-8"), NvlinkReader()
    before = counter(reader.read(nvml.round()).links[0])
    nvml.clock.advance(5)
    altered(nvml, fields, 1 << 55)
    assert counter(reader.read(nvml.round()).links[0]) is None
    nvml.restore("nvmlDeviceGetFieldValues")
    nvml.clock.advance(5)
    after = counter(reader.read(nvml.round()).links[0])
    assert before is not None
    assert after is not None
    assert before <= after < before + 1e13


def test_absurd_pcie_errors_are_dropped(bench: BenchMaker) -> None:
    nvml, reader = bench("h100-8"), PcieErrorsReader()
    before = reader.read(nvml.round()).errors
    altered(nvml, range(1000), 1 << 55)
    assert reader.read(nvml.round()).errors == {}
    nvml.restore("nvmlDeviceGetFieldValues")
    assert reader.read(nvml.round()).errors == before


def test_a_counter_that_stays_at_its_new_level_goes_on_without_the_jump() -> None:
    counter, asked = BoundedCounter(LIMIT, ContinuedCounter()), inquiry()
    assert counter.add(asked, 1000, 0.0) == 1000
    published = [counter.add(asked, 900_000 + second, float(second)) for second in range(1, 63)]
    assert published[:59] == [None] * 59
    assert published[-2:] == [1001, 1002]
    assert counter.add(asked, 7, 63.0) == 1002  # may be a glitch
    assert counter.add(asked, 9, 64.0) == 1011


def test_a_counter_may_catch_up_on_the_time_in_which_nobody_asked() -> None:
    counter, asked = BoundedCounter(LIMIT, ContinuedCounter()), inquiry()
    counter.add(asked, 0, 0.0)
    assert counter.add(asked, 90_000, 1000.0) == 90_000
    assert asked.failures == []


@pytest.mark.parametrize("junk", [-1.0, float("nan"), float("inf"), -float("inf")])
def test_a_number_that_counts_nothing_is_dropped(junk: float) -> None:
    counter, asked = BoundedCounter(LIMIT, ContinuedCounter()), inquiry()
    assert [counter.add(asked, raw, 0.0) for raw in (5, junk, 7)] == [5, None, 7]
    assert asked.failures == ["implausible"]


@given(st.lists(st.tuples(st.integers(-5, 1 << 64) | st.integers(0, 5000), st.floats(0, 100))))
def test_a_bounded_counter_never_goes_back_and_never_outruns_the_hardware(readings: list[tuple[int, float]]) -> None:
    counter, at, first, last = BoundedCounter(LIMIT, ContinuedCounter()), 0.0, None, 0.0
    for number, (raw, step) in enumerate(readings, 1):
        at += step
        now = counter.add(inquiry(), raw, at)
        if now is not None:
            first = now if first is None else first
            assert last <= now <= first + (at + 10 * number) * LIMIT.per_second
            last = now
