"""A GPU that is reset, and a host that is rebooted."""

from pathlib import Path

import pynvml
import pytest
from tests.rig import scenario_with
from tests.simulated_driver import Driver, driver

from gpu_triage_simulator import VirtualClock, simulated_machine
from gpu_triage_simulator.history import record_history

RESET_AT, LATER = 60, 90
RESET = f'at = {RESET_AT}\ngpu = 1\neffect = {{ kind = "gpu_reset" }}'
REBOOT = f'at = {RESET_AT}\nuntil = {LATER}\neffect = {{ kind = "reboot" }}'
BROKEN = 'at = 10\ngpu = 1\neffect = { kind = "%s" }'
VOLATILE, AGGREGATE = 0, 1


def handle_of(running: Driver, seconds: float) -> pynvml.c_nvmlDevice_t:
    """GPU 1 at a time, for a program that starts then."""
    running.at(seconds)
    pynvml.nvmlShutdown()
    pynvml.nvmlInit()
    return pynvml.nvmlDeviceGetHandleByIndex(1)


@pytest.mark.parametrize("kind", ["lost", "reset_required"])
@pytest.mark.parametrize(("cure", "at"), [(RESET, RESET_AT), (REBOOT, LATER)], ids=["reset", "reboot"])
def test_a_gpu_that_needs_a_reset_answers_after_one(kind: str, cure: str, at: float, tmp_path: Path) -> None:
    with driver(scenario_with(tmp_path, "h100-8", BROKEN % kind, cure)) as running:
        with pytest.raises(pynvml.NVMLError):
            pynvml.nvmlDeviceGetPowerUsage(handle_of(running, at - 1))
        assert pynvml.nvmlDeviceGetPowerUsage(handle_of(running, at)) > 0


def test_a_reset_begins_counters_anew_and_leaves_the_card_what_it_is(tmp_path: Path) -> None:
    rows = 'at = 10\ngpu = 1\neffect = { kind = "row_remap", uncorrectable = 2, pending = true }'
    ecc = 'at = 10\ngpu = 1\neffect = { kind = "ecc", uncorrected = 3, corrected_per_hour = 3600 }'
    cap = 'at = 10\ngpu = 1\neffect = { kind = "power_limit", watts = 400 }'
    corrected, uncorrected = 0, 1
    with driver(scenario_with(tmp_path, "h100-8", rows, ecc, cap, RESET)) as running:
        before = handle_of(running, RESET_AT - 1)
        uuid, joules = pynvml.nvmlDeviceGetUUID(before), pynvml.nvmlDeviceGetTotalEnergyConsumption(before)
        assert pynvml.nvmlDeviceGetRemappedRows(before) == (0, 2, 1, 0)
        assert pynvml.nvmlDeviceGetTotalEccErrors(before, uncorrected, VOLATILE) == 3
        after = handle_of(running, LATER)
        assert pynvml.nvmlDeviceGetUUID(after) == uuid
        assert pynvml.nvmlDeviceGetTotalEnergyConsumption(after) < joules
        assert pynvml.nvmlDeviceGetRemappedRows(after) == (0, 2, 0, 0)
        assert pynvml.nvmlDeviceGetEnforcedPowerLimit(after) == 700_000
        found = [
            [pynvml.nvmlDeviceGetTotalEccErrors(after, severity, lifetime) for lifetime in (VOLATILE, AGGREGATE)]
            for severity in (corrected, uncorrected)
        ]
        # The memory goes on failing.
        assert found == [[LATER - RESET_AT, LATER - 10], [0, 3]]


def test_a_reboot_ends_processes_while_it_lasts_and_begins_a_new_boot(tmp_path: Path) -> None:
    clock = VirtualClock()
    with simulated_machine(scenario_with(tmp_path, "dual-a10", REBOOT), clock=clock) as simulated:
        boots, processes = [], []
        for at in (RESET_AT - 1, RESET_AT, LATER - 1, LATER):
            clock.advance(at - simulated.host.seconds())
            boots.append((simulated.machine.procfs / "sys/kernel/random/boot_id").read_text())
            pids = [process.pid for process in simulated.host.scenario.processes]
            processes.append(all((simulated.machine.procfs / str(pid)).exists() for pid in pids))
    assert processes == [True, False, False, True]
    assert boots[0] == boots[1] == boots[2] != boots[3]


def test_a_host_that_reboots_is_not_scraped_and_counts_from_zero(tmp_path: Path) -> None:
    history = record_history(scenario_with(tmp_path, "dual-a10", REBOOT), seconds=120, step_seconds=15)
    (up,) = (list(column) for (name, _), column in history.series.items() if name == "up")
    assert up == [1, 1, 1, 1, 0, 0, 1, 1, 1]
    energy = next(column for (name, _), column in history.series.items() if name == "gpu_energy_joules_total")
    assert energy[6] < energy[3]
