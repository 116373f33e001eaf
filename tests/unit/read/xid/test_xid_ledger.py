from collections.abc import Sequence
from itertools import accumulate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_triage.read.xid.xid_events import UNKNOWN, XidReport, XidSource
from gpu_triage.read.xid.xid_ledger import (
    CODES_PER_GPU,
    OTHER,
    UNKNOWN_XID,
    WINDOW_SECONDS,
    XidCount,
    XidLedger,
    XidName,
)

GPU = "0000:65:00.0"
KMSG, NVML = XidSource.KMSG, XidSource.NVML


def logged(at: float, code: int | None = 79, gpu: str = GPU, *, fatal: bool | None = None) -> XidReport:
    return XidReport(gpu, code, KMSG, at, at, fatal=fatal)


def told(since: float, until: float, code: int = 79, gpu: str = GPU) -> XidReport:
    return XidReport(gpu, code, NVML, since, until)


def counts(ledger: XidLedger) -> dict[XidName, int]:
    return {name: count.count for name, count in ledger.counts().get(GPU, {}).items()}


def counted(*reports: XidReport) -> dict[XidName, int]:
    """Counts of a ledger that sees these reports, of what is held back, too."""
    ledger = XidLedger()
    for report in reports:
        ledger.see(report)
    ledger.release(1_000_000)
    return counts(ledger)


def count(*reports: XidReport) -> int:
    return counted(*reports)[XidName("79")]


BESIDE, BEYOND = WINDOW_SECONDS, WINDOW_SECONDS + 0.1


@pytest.mark.parametrize(
    ("reports", "incidents"),
    [
        # Two sources of one incident count once, whichever comes first, if their times are within the window.
        ((logged(100.2), told(100, 101)), 1),
        ((told(100, 101), logged(100.2)), 1),
        ((logged(100), told(100 + BESIDE, 106)), 1),
        ((logged(100), told(100 + BEYOND, 106)), 2),
        ((told(90, 100), logged(100 + BESIDE)), 1),
        ((told(90, 100), logged(100 + BEYOND)), 2),
        ((logged(100), told(99, 160)), 1),  # fetched late
        # Repeats of one source are incidents of their own.
        ((logged(100), logged(100), told(99, 101), logged(100.5)), 3),
        ((told(99, 101), told(99, 101)), 2),
        # "Fallen off the bus" is the 79 beside it, or a 79 by itself.
        ((logged(100), logged(100.1, None)), 1),
        ((logged(100, None), logged(100.1)), 1),
        ((logged(100, None), logged(100.1, None), logged(101, None)), 1),
        ((logged(100, None), told(99, 101), logged(100.1)), 1),
        ((logged(100, None),), 1),
        ((logged(100, None), logged(200, None)), 2),
        ((logged(100, 31), logged(100, None)), 1),
    ],
)
def test_incidents(reports: tuple[XidReport, ...], incidents: int) -> None:
    assert count(*reports) == incidents


@pytest.mark.parametrize(
    ("reports", "named"),
    [
        ((logged(100.2, 149, fatal=False), told(100, 101, 149)), {("149", "false"): 1}),
        ((told(100, 101, 149), logged(100.2, 149, fatal=False)), {("149", "false"): 1}),
        # A burst of both kinds.
        (
            [each for fatal in (True, False, False) for each in (told(100, 101, 149), logged(100.5, 149, fatal=fatal))],
            {("149", "true"): 1, ("149", "false"): 2},
        ),
        # Of several Xids, the newest code is the one that NVML does not know.
        (
            (logged(100, 31), logged(100.1, 167), told(99, 101, UNKNOWN), told(99, 101, 31)),
            {("31", ""): 1, ("167", ""): 1},
        ),
    ],
)
def test_an_xid_is_named_by_the_kernel_log(reports: Sequence[XidReport], named: dict[tuple[str, str], int]) -> None:
    assert counted(*reports) == named


def test_the_last_time_is_the_kernels_where_it_has_one() -> None:
    ledger = XidLedger()
    ledger.see(logged(50))
    ledger.see(told(100, 101))
    assert ledger.counts()[GPU][XidName("79")] == XidCount(2, 101)
    ledger.see(logged(100.25))
    assert ledger.counts()[GPU][XidName("79")] == XidCount(2, 100.25)


def test_codes_are_bounded_and_none_is_lost() -> None:
    ledger = XidLedger()
    for code in range(1, 201):
        ledger.see(logged(10.0 * code, code))
    seen = ledger.counts()[GPU]
    assert len(seen) == CODES_PER_GPU + 1
    assert sum(each.count for each in seen.values()) == 200
    assert seen[XidName(OTHER)].count == 200 - CODES_PER_GPU


def test_what_waits_for_a_source_that_never_speaks_is_bounded() -> None:
    ledger = XidLedger()
    for number in range(20_000):
        ledger.see(logged(number))
    assert ledger.counts()[GPU][XidName("79")].count == 20_000
    assert sum(len(queue) for queue in ledger._gpus[GPU]["79"].awaited.values()) < 5000


def test_what_only_nvml_told_of_such_an_xid_is_held_back_until_it_is_given_up() -> None:
    ledger = XidLedger()
    assert ledger.see(told(100, 101, 149))
    ledger.release(100.9)
    assert counts(ledger) == {}
    ledger.release(101)
    assert counts(ledger) == {XidName("149"): 1}
    assert ledger.counts()[GPU][XidName("149")].last_at == 101


def test_a_kernel_log_that_comes_too_late_does_not_count_it_again_nor_take_it_back() -> None:
    ledger = XidLedger()
    ledger.see(told(100, 101, 149))
    ledger.release(1000)
    assert not ledger.see(logged(100.5, 149, fatal=False))
    assert counts(ledger) == {XidName("149"): 1}


def test_what_is_held_back_when_the_card_leaves_is_settled_with_it() -> None:
    ledger = XidLedger()
    ledger.see(told(100, 101, 149))
    assert {name: count.count for name, count in ledger.settle(GPU, 200).items()} == {XidName("149"): 1}
    assert ledger.counts() == {}


def test_every_incident_is_handed_out_once_under_the_name_it_was_counted_as() -> None:
    ledger = XidLedger()
    ledger.see(told(100, 101, 149))
    ledger.see(logged(100.5, 79))
    assert [(xid.name, xid.at) for xid in ledger.take_counted()] == [(XidName("79"), 100.5)]
    ledger.see(logged(100.6, 149, fatal=True))
    assert [xid.name for xid in ledger.take_counted()] == [XidName("149", "true")]
    assert ledger.take_counted() == ()


@st.composite
def two_sources(draw: st.DrawFn) -> tuple[int, list[XidReport]]:
    """Incidents as both sources report them, each late in its own way, taken in in any order of the two."""
    gaps = draw(st.lists(st.floats(0.0, 20.0), min_size=1, max_size=30))
    happened = [100.0 + at for at in accumulate(gaps)]
    # A source's stamps may be off, but it tells its incidents in their order.
    late = [draw(st.floats(0.0, 0.99 * WINDOW_SECONDS)) for _ in happened]
    stamped = list(accumulate((at + by for at, by in zip(happened, late, strict=True)), max))
    kernel = [logged(min(stamp, at + WINDOW_SECONDS)) for stamp, at in zip(stamped, happened, strict=True)]
    period = draw(st.floats(0.1, 60.0))
    fetched = [told(at // period * period, (at // period + 1) * period) for at in happened]
    merged: list[XidReport] = []
    while kernel or fetched:
        side = kernel if not fetched or (kernel and draw(st.booleans())) else fetched
        merged.append(side.pop(0))
    return len(happened), merged


@given(two_sources())
def test_any_interleaving_of_two_sources_counts_each_incident_once(case: tuple[int, list[XidReport]]) -> None:
    incidents, reports = case
    assert count(*reports) == incidents


@given(two_sources())
def test_no_interleaving_counts_fewer_than_a_source_alone_or_more_than_both(case: tuple[int, list[XidReport]]) -> None:
    _, reports = case
    kept = [report for number, report in enumerate(reports) if number % 3]
    alone = [sum(1 for report in kept if report.source is source) for source in XidSource]
    if kept:
        assert max(alone) <= count(*kept) <= sum(alone)


def test_a_source_that_is_minutes_late_counts_nothing_twice() -> None:
    early = [told(second, second + 1) for second in range(0, 300, 10)]
    assert count(*early, *(logged(second + 0.5) for second in range(0, 300, 10))) == len(early)


def test_what_nvml_does_not_know_is_the_xid_that_the_kernel_log_tells_of() -> None:
    for reports in (
        (logged(100.2, code=167), told(100, 101, code=UNKNOWN)),
        (told(100, 101, code=UNKNOWN), logged(100.2, code=167)),
    ):
        ledger = XidLedger()
        for report in reports:
            ledger.see(report)
        ledger.release(1000)
        assert set(ledger.counts()[GPU]) == {XidName("167")}
        # The next one of this code is another incident.
        ledger.see(told(100, 101, code=167))
        assert ledger.counts()[GPU][XidName("167")].count == 2


def test_what_nobody_knows_is_unknown_and_no_code() -> None:
    ledger = XidLedger()
    ledger.see(told(100, 101, code=UNKNOWN))
    ledger.see(logged(120, code=31))
    assert set(ledger.counts()[GPU]) == {XidName("31")}
    ledger.release(101)
    assert ledger.counts()[GPU][XidName(UNKNOWN_XID)] == XidCount(1, 101)
