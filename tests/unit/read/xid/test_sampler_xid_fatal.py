"""NVLink 5 Xids: only the kernel log says whether one is fatal, and NVML may be first to tell of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.rig import Rig, only, rig, scenario_with

from gpu_triage_simulator import Scenario

LEAN = only("power", "thermal", "identity")


def xid(at: int, gpu: int, code: int, more: str = "") -> str:
    return f'at = {at}\ngpu = {gpu}\neffect = {{ kind = "xid", code = {code}{more} }}'


def host(tmp_path: Path, *events: str) -> Scenario:
    return scenario_with(tmp_path, "idle-downshift", *events)


def fatals(running: Rig) -> dict[tuple[str, str], float]:
    series = running.series("gpu_xid_errors_total")
    return {(labels["xid"], labels["fatal"]): value for labels, value in series if value}


NONFATAL_TEXT = "NETIR_LINK_EVT Nonfatal XC0 i0 Link 00 (0x025001c6 0x00000000)"


@pytest.mark.slow
def test_a_nonfatal_nvlink_xid_that_nvml_tells_first_never_looks_fatal(tmp_path: Path) -> None:
    """NVML knows only the code: what looks like a page for some seconds is one."""
    with rig(host(tmp_path, xid(20, 0, 149, ', reported_by = "nvml"')), LEAN) as running:
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
    with rig(host(tmp_path, xid(20, 0, 149, ', reported_by = "nvml"')), LEAN) as running:
        running.kmsg.unlink()
        running.run_to(21)
        assert fatals(running) == {("149", ""): 1}


@pytest.mark.slow
def test_a_restart_reads_again_whether_an_nvlink_xid_was_fatal(tmp_path: Path) -> None:
    with rig(host(tmp_path, xid(20, 0, 149, ", fatal = false")), LEAN) as running:
        running.run_to(60)
        running.sampler.close(lambda condition: condition())
        again = Rig(running.simulated, running.clock, running.config)
        again.run(10)
        assert fatals(again) == {("149", "false"): 1}
