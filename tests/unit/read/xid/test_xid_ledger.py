"""The ledger of Xids, where their counters begin, and failures in one place of the chip."""

import os
from collections.abc import Sequence
from itertools import accumulate
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.incident_hosts import host, xid
from tests.one_shot import look_at
from tests.rig import Rig, only, rig, scenario_with
from tests.unit.read.xid.test_sampler_xid import LEAN, sources

from gpu_triage.read.metrics.contract import GpuLabels
from gpu_triage.read.xid.kernel_records import ROUND_BYTES, KernelLog
from gpu_triage.read.xid.xid_events import UNKNOWN, UnitFailures, XidReport, XidSite, XidSource, parse_xid
from gpu_triage.read.xid.xid_ledger import UNKNOWN_XID, WINDOW_SECONDS, XidCount, XidLedger, XidName
from gpu_triage.read.xid.xid_metrics import XidReading, render
from gpu_triage.sampler import xid as xid_sampler
from gpu_triage_simulator import load_scenario

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


BESIDE, BEYOND = 5.0, 5.1


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
        # What NVML does not know is the Xid of the kernel log; the next one of its code is another incident.
        ((logged(100.2, 167), told(100, 101, UNKNOWN), told(100, 101, 167)), {("167", ""): 2}),
        ((told(100, 101, UNKNOWN), logged(100.2, 167), told(100, 101, 167)), {("167", ""): 2}),
        ((told(100, 101, UNKNOWN), told(100, 101, 31)), {(UNKNOWN_XID, ""): 1, ("31", ""): 1}),
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


def test_what_waits_for_a_source_that_never_speaks_is_bounded() -> None:
    ledger = XidLedger()
    for number in range(20_000):
        ledger.see(logged(number))
    assert ledger.counts()[GPU][XidName("79")].count == 20_000
    assert sum(len(queue) for queue in ledger._gpus[GPU]["79"].awaited.values()) < 5000


def test_codes_of_a_gpu_beyond_those_that_are_kept_count_as_other() -> None:
    assert counted(*(logged(100.0 * code, code) for code in range(1, 71)))[XidName("other")] == 70 - 64


def test_what_only_nvml_told_of_such_an_xid_is_held_back_until_a_kernel_log_that_comes_is_too_late() -> None:
    ledger = XidLedger()
    assert ledger.see(told(100, 101, 149))
    ledger.release(100.9)
    assert counts(ledger) == {}
    ledger.release(101)
    assert counts(ledger) == {XidName("149"): 1}
    assert ledger.counts()[GPU][XidName("149")].last_at == 101
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
    # Of a part of them it counts no fewer than a source alone, and no more than both.
    kept = [report for number, report in enumerate(reports) if number % 3]
    alone = [sum(1 for report in kept if report.source is source) for source in XidSource]
    if kept:
        assert max(alone) <= count(*kept) <= sum(alone)


def test_what_nobody_knows_is_unknown_and_no_code() -> None:
    ledger = XidLedger()
    ledger.see(told(100, 101, code=UNKNOWN))
    ledger.see(logged(120, code=31))
    assert set(ledger.counts()[GPU]) == {XidName("31")}
    ledger.release(101)
    assert ledger.counts()[GPU][XidName(UNKNOWN_XID)] == XidCount(1, 101)


def fatals(running: Rig) -> dict[tuple[str, str], float]:
    series = running.series("gpu_xid_errors_total")
    return {(labels["xid"], labels["fatal"]): value for labels, value in series if value}


NONFATAL_TEXT = "NETIR_LINK_EVT Nonfatal XC0 i0 Link 00 (0x025001c6 0x00000000)"


@pytest.mark.slow
def test_a_nonfatal_nvlink_xid_that_nvml_tells_first_never_looks_fatal(tmp_path: Path) -> None:
    """NVML knows only the code: what looks like a page for some seconds is one."""
    with rig(host(tmp_path, xid(20, 149, 0, ', reported_by = "nvml"')), LEAN) as running:
        running.run_to(23)
        assert fatals(running) == {}
        running.kernel_logs(9001, f"NVRM: Xid (PCI:0000:65:00): 149, {NONFATAL_TEXT}", ago=3)
        seen = []
        for second in range(24, 60):
            running.run_to(second)
            seen.append(fatals(running))
        assert all(now == {("149", "false"): 1} for now in seen)
        assert len(running.series("gpu_xid_last_timestamp_seconds")) == 1


def test_where_the_kernel_log_is_not_heard_an_nvlink_xid_is_published_at_once(tmp_path: Path) -> None:
    with rig(host(tmp_path, xid(20, 149, 0, ', reported_by = "nvml"')), LEAN) as running:
        running.kmsg.unlink()
        running.run_to(21)
        assert fatals(running) == {("149", ""): 1}


@pytest.mark.slow
def test_a_kernel_log_that_overran_is_not_heard_for_a_while(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As /dev/kmsg does it: EPIPE, then a record whose number is not the next (Documentation/ABI/testing/dev-kmsg)."""
    answers: list[bytes | OSError] = []

    def read(file: int, size: int) -> bytes:
        answer = answers.pop(0) if answers else os.read(file, size)
        if isinstance(answer, OSError):
            raise answer
        return answer

    monkeypatch.setattr(xid_sampler, "KernelLog", lambda path: KernelLog(path, read))
    with rig(load_scenario("idle-downshift"), only("power", "identity")) as running:
        running.run_to(20)
        assert sources(running) == {"kmsg": 1, "nvml": 1}
        for number in (5_000_000, 6_000_000):
            answers[:] = [BrokenPipeError(), f"6,{number},1,-;usb 1-1: new device\n".encode()]
            running.run(60)
            assert sources(running) == {"kmsg": 0, "nvml": 1}
        running.run(100)
        assert sources(running) == {"kmsg": 1, "nvml": 1}
        (told,) = (record for record in caplog.records if "overran" in record.message)
        assert told.__dict__["fields"]["lost"] > 4_000_000


def published(running: Rig) -> dict[tuple[str, str], float]:
    return {(labels["gpu"], labels["xid"]): value for labels, value in running.series("gpu_xid_errors_total")}


def test_a_count_never_starts_below_what_the_kernel_log_holds() -> None:
    """A log that takes several rounds to read must not look like Xids of now."""
    with rig(load_scenario("idle-downshift")) as running:
        running.run(10)
        running.sampler.close(lambda condition: condition())
        stamp = round(running.clock.now().monotonic * 1e6)
        with running.kmsg.open("a") as log:
            log.writelines(f"6,{5000 + i},{stamp},-;{'x' * 1000}\n" for i in range(3 * ROUND_BYTES // 1000))
            log.writelines(f"4,{90000 + i},{stamp},-;NVRM: Xid (PCI:0000:65:00): 31, MMU Fault\n" for i in range(5))
        again = Rig(running.simulated, running.clock, running.config)
        seen = []
        for _ in range(12):
            again.run(1)
            seen.append(published(again).get(("0", "31")))
        assert seen[0] is None
        assert seen[-1] == 5
        assert set(seen) == {None, 5}


def rendered(reading: XidReading) -> list[tuple[str, tuple[str, ...], float]]:
    return [(sample.spec.name, sample.labels, sample.value) for sample in render(reading)]


def test_what_a_program_causes_is_counted_from_0_and_has_no_time_before_it_happens() -> None:
    gpu = GpuLabels("6", "GPU-a")
    codes = {XidName("31"): XidCount(2, 5.0), XidName("79"): XidCount(1, 7.0)}
    samples = rendered(XidReading(counted=(gpu,), gpus={gpu: codes}, unassigned={}, sources={}))
    published = {labels[2]: value for name, labels, value in samples if name == "gpu_xid_errors_total"}
    assert published == {"13": 0, "31": 2, "32": 0, "43": 0, "45": 0, "68": 0, "69": 0, "79": 1, "119": 0}
    assert [labels[2] for name, labels, _ in samples if name == "gpu_xid_last_timestamp_seconds"] == ["31", "79"]


BOARD, OTHER_BOARD = "0000:18:00.0", "0000:2a:00.0"
UNIT = "GPC 3 TPC 2"
HOUR = 3600.0


_SM, _MMU = "Graphics SM", "MMU Fault: ENGINE"


@pytest.mark.parametrize(
    ("text", "site"),
    [
        (
            f"13, pid='<unknown>', name=<unknown>, {_SM} Warp Exception on (GPC 10, TPC 1, SM 1): Out Of Range Address",
            ("GPC 10 TPC 1", "", ""),
        ),
        (
            f"13, pid=626486, name=pt_main_thread, {_SM} Global Exception on (GPC 7, TPC 7, SM 0): Errors",
            ("GPC 7 TPC 7", "626486", "pt_main_thread"),
        ),
        (
            f"31, pid=79749, name=exe, Ch 0000000a. {_MMU} GRAPHICS GPC2 GPCCLIENT_T1_7 faulted @ 0x2b57_b3000000.",
            ("GPC 2 L1 7", "79749", "exe"),
        ),
        (f"31, pid=1, name=a, Ch 8. {_MMU} GRAPHICS GPCCLIENT_T1_14 faulted @ 0x7f.", None),
        (f"31, pid=1, name=a, Ch 8. {_MMU} GRAPHICS GPC2 GPCCLIENT_PROP_0 faulted @ 0x0.", None),
        (f"31, pid=1, name=a, {_MMU} NVDEC HUBCLIENT_NVDEV faulted @ 0x0_00000000.", None),
        ("13, pid='<unknown>', name=<unknown>, Graphics Exception: ESR 0x546fb0=0x11f000e 0x546fb4=0x24", None),
    ],
)
def test_a_place_is_what_the_driver_names(text: str, site: tuple[str, str, str] | None) -> None:
    found = parse_xid(f"NVRM: Xid (PCI:0000:18:00): {text}")
    assert found is not None
    assert (found.gpu, found.site) == (BOARD, site)


def failed(
    *processes: tuple[str, str, float, str], gpu: str = BOARD, failures: UnitFailures | None = None
) -> UnitFailures:
    """Failures by PID, program, time and place."""
    failures = failures or UnitFailures()
    for pid, program, at, unit in processes:
        failures.see(gpu, XidSite(unit, pid, program), at)
    return failures


THREE = (("1", "python", 0.0, UNIT), ("2", "gromacs", HOUR, UNIT), ("3", "python", 2 * HOUR, UNIT))

AGAIN = tuple((str(n), "python", n * HOUR, UNIT) for n in range(10))


@pytest.mark.parametrize(
    ("processes", "suspects"),
    [
        # Three processes of two programs in one place speak against the board, or of one program if a day apart.
        (THREE, 3),
        (THREE[:2], 0),
        (AGAIN, 0),
        ((*AGAIN, ("99", "python", 25 * HOUR, UNIT)), 11),
        # Lines of one crash are one failure.
        ([("1", "python", second, UNIT) for second in (0.0, 0.1, 0.2, 5.0)], 0),
        # Failures in other places speak for the board, but for those of one process.
        ((*THREE, *((str(n), "python", n * HOUR, f"GPC {n} TPC 0") for n in range(10, 12))), 0),
        ((*THREE, *(("77", "python", 9 * HOUR, f"GPC {n} TPC 0") for n in range(5))), 3),
        # Failures without a process count by their time.
        ([("", "", day * 86_400.0, UNIT) for day in range(3)], 3),
    ],
)
def test_what_speaks_against_the_board(processes: Sequence[tuple[str, str, float, str]], suspects: int) -> None:
    assert failed(*processes).suspects() == ({BOARD: (UNIT, suspects)} if suspects else {})


def test_a_program_that_fails_there_on_another_gpu_too_is_the_program() -> None:
    failures = failed(*THREE)
    failed(("9", "python", HOUR, UNIT), gpu=OTHER_BOARD, failures=failures)
    assert failures.suspects() == {}
    failed(("9", "blender", HOUR, UNIT), gpu=OTHER_BOARD, failures=failures)
    assert failures.suspects() == {}


def test_another_card_starts_anew() -> None:
    failures = failed(*THREE)
    failures.forget(BOARD)
    assert failures.suspects() == {}


def test_memory_is_bounded() -> None:
    failures = failed(*((str(n), f"p{n}", n * 60.0, UNIT) for n in range(1000)))
    assert failures.suspects()[BOARD][1] == 64
    for n in range(1000):
        failed(*THREE, gpu=f"{n:04x}:18:00.0", failures=failures)
    assert len(failures._failures) == 256


def crash(at: int, pid: int, program: str) -> str:
    place = "Graphics SM Warp Exception on (GPC 3, TPC 2, SM 1): Illegal Instruction Parameter"
    return f'at = {at}\ngpu = 1\neffect = {{ kind = "xid", code = 13, message = "pid={pid}, name={program}, {place}" }}'


@pytest.mark.slow
def test_the_suspect_is_published_with_its_gpu_and_found(tmp_path: Path) -> None:
    scenario = scenario_with(
        tmp_path, "dual-a10", crash(5, 901, "python"), crash(20, 902, "gromacs"), crash(35, 903, "python")
    )
    with rig(scenario) as running:
        running.run_to(30)
        assert running.series("gpu_xid_suspect_unit_processes") == []
        running.run_to(45)
        ((labels, value),) = running.series("gpu_xid_suspect_unit_processes")
        assert (labels["gpu"], labels["unit"], value) == ("1", UNIT, 3)
    report = look_at(scenario, 60.0)
    assert [each.measured for each in report.findings if each.check.code == "xid.same_unit"] == [
        f"3 processes failed at {UNIT}"
    ]
