from __future__ import annotations

from pathlib import Path

from tests.gpu_rounds import rounds_of
from tests.rig import rig, scenario_with

from gpu_triage.read.gpu.pcie import PcieErrorsReader


def faults(**rates: int | str) -> str:
    """Errors of GPU 0's link from second 10 on."""
    given = ", ".join(f"{name} = {value!r}".replace("'", '"') for name, value in rates.items())
    return f'at = "10s"\ngpu = 0\neffect = {{ kind = "pcie_errors", {given} }}'


def test_a_sick_link_counts_by_type(tmp_path: Path) -> None:
    event = faults(replays_per_hour=720, correctable_per_hour=3600, nonfatal_per_hour=360, fatal_per_hour=360)
    with rounds_of(scenario_with(tmp_path, "dual-a10", event)) as rounds:
        errors = PcieErrorsReader().read(rounds.at(20)).errors
        assert (errors["correctable"], errors["bad_tlp"], errors["lcrc"]) == (10, 10, 10)
        assert (errors["naks_received"], errors["non_fatal"], errors["fatal"]) == (2, 1, 1)
        assert errors["l0_to_recovery"] == 0


def test_errors_that_only_the_port_sees_show_in_the_kernels_count_of_the_port(tmp_path: Path) -> None:
    event = faults(correctable_per_hour=3600, nonfatal_per_hour=720, seen_by="port")
    with rig(scenario_with(tmp_path, "dual-a10", event)) as running:
        running.run_to(31)
        seen = {
            (labels["device"], labels["severity"]): value
            for labels, value in running.series("gpu_pcie_aer_errors_total", gpu="0")
        }
        assert seen == {
            ("gpu", "correctable"): 0,
            ("gpu", "nonfatal"): 0,
            ("gpu", "fatal"): 0,
            ("port", "correctable"): 21,
            ("port", "nonfatal"): 4,
            ("port", "fatal"): 0,
        }
        assert {value for _, value in running.series("gpu_pcie_errors_total", gpu="0")} == {0.0}
        assert {value for _, value in running.series("gpu_pcie_aer_errors_total", gpu="1")} == {0.0}
