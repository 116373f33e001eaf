"""Conditions that come and go for hours are one incident each: the judge in the daemon, on a virtual clock.

Rules over the raw series made 12 and 26 pages of the first two, and none of the others.
"""

from pathlib import Path

import pytest
from tests.judged import HOST, judged
from tests.rig import scenario_with
from tests.unit.read.gpu.test_passed_through import bind_to_vfio, plug

from gpu_triage.judge.findings.table import BY_CODE, Severity
from gpu_triage.options.config import Config

pytestmark = pytest.mark.slow

BUSY_PAIR = "rtx-4070-ti-super"
MINUTE, HOUR = 60, 3600
MINUTELY = Config(sample_fast_seconds=60.0, sample_medium_seconds=60.0, sample_slow_seconds=600.0)


def event(effect: str, *, gpu: int, at: int = 300) -> str:
    """What begins after five minutes and stays."""
    return f"at = {at}\ngpu = {gpu}\neffect = {{ {effect} }}"


def is_told(code: str) -> bool:
    """Whether a ticket or a page is made of it."""
    return BY_CODE[code].severity is not Severity.INFO and BY_CODE[code].alert is not None


def test_a_gpu_that_is_handed_to_a_virtual_machine_is_told_to_nobody(tmp_path: Path) -> None:
    """The exporter was asked to release the GPUs, without which the driver does not let go of one."""
    scenario = scenario_with(tmp_path, BUSY_PAIR, event('kind = "removed"', gpu=1, at=600))
    with judged(scenario, MINUTELY) as seen:
        seen.run_to(540)
        seen.running.sampler.release()
        seen.run_to(660)
        sysfs = seen.running.simulated.machine.sysfs
        bind_to_vfio(sysfs, plug(sysfs, scenario.gpus[1].slot.bus_id))
        seen.running.sampler.acquire()
        seen.run_to(HOUR)
        assert seen.running.value("gpu_devices", source="nvml") == 1
        told = seen.told_codes(HOST) | seen.told_codes("1")
    assert {code for code in told if is_told(code)} == set()


def test_a_driver_that_is_loaded_anew_has_lost_no_gpu(tmp_path: Path) -> None:
    away = 'at = 60\nuntil = 120\neffect = { kind = "driver_not_loaded" }'
    with judged(scenario_with(tmp_path, BUSY_PAIR, away), Config(sample_fast_seconds=5.0)) as seen:
        seen.run_to(180)
        assert seen.running.value("gpu_up", gpu="0") == 1
        assert [key for key in seen.lives if key[1] == "gpu.lost"] == []
