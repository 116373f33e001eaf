"""Where counters of Xids begin, what an overrun of the kernel log costs, and which NVLink 5 Xids are fatal."""

import os
from pathlib import Path

import pytest
from tests.incident_hosts import host, xid
from tests.rig import Rig, only, rig, scenario_with
from tests.unit.read.xid.test_sampler_xid import LEAN, sources

from gpu_triage.read.metrics.contract import GpuLabels
from gpu_triage.read.xid.kernel_records import ROUND_BYTES, KernelLog
from gpu_triage.read.xid.xid_ledger import XidCount, XidName
from gpu_triage.read.xid.xid_metrics import XidReading, render
from gpu_triage.sampler import xid as xid_sampler
from gpu_triage_simulator import load_scenario


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


def counts(running: Rig) -> dict[tuple[str, str], float]:
    return {(labels["gpu"], labels["xid"]): value for labels, value in running.series("gpu_xid_errors_total")}


def test_a_gpu_never_seen_starts_with_none(tmp_path: Path) -> None:
    scenario = scenario_with(tmp_path, "idle-downshift", 'at = 0\ngpu = 1\neffect = { kind = "lost" }')
    with rig(scenario) as running:
        running.run(10)
        assert {gpu for gpu, _ in counts(running)} == {"0"}


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
            seen.append(counts(again).get(("0", "31")))
        assert seen[0] is None
        assert seen[-1] == 5
        assert set(seen) == {None, 5}


def rendered(reading: XidReading) -> list[tuple[str, tuple[str, ...], float]]:
    return [(sample.spec.name, sample.labels, sample.value) for sample in render(reading)]


def test_what_a_program_causes_is_counted_from_0_and_has_no_time_before_it_happens() -> None:
    gpu = GpuLabels("6", "GPU-a")
    codes = {XidName("31"): XidCount(2, 5.0), XidName("79"): XidCount(1, 7.0)}
    samples = rendered(XidReading(counted=(gpu,), gpus={gpu: codes}, unassigned={}, sources={}))
    counts = {labels[2]: value for name, labels, value in samples if name == "gpu_xid_errors_total"}
    assert counts == {"13": 0, "31": 2, "32": 0, "43": 0, "45": 0, "68": 0, "69": 0, "79": 1, "119": 0}
    assert [labels[2] for name, labels, _ in samples if name == "gpu_xid_last_timestamp_seconds"] == ["31", "79"]
