"""Processes that the driver lists in several ways, and exporters it lists none to."""

from pathlib import Path

import pynvml
import pytest
from tests.rig import rig
from tests.simulated_driver import driver

from gpu_triage.errors import ScenarioError
from gpu_triage.read.processes.facts import names_are_host_pids
from gpu_triage_simulator import Scenario, VirtualClock, describe_scenario, load_scenario, simulated_machine
from gpu_triage_simulator.scenario_file import SCENARIOS


def changed(tmp_path: Path, base: str, more: str) -> Scenario:
    path = tmp_path / f"{base}.toml"
    path.write_text((SCENARIOS / f"{base}.toml").read_text() + more)
    return load_scenario(path)


@pytest.mark.parametrize("procfs", ["host_procfs = true", "host_procfs = false"])
def test_in_another_pid_namespace_the_driver_lists_nobody_and_procfs_tells_why(tmp_path: Path, procfs: str) -> None:
    host_pids = procfs.endswith("true")
    scenario = changed(tmp_path, "rtx-4070-ti-super", f"\n[exporter]\nhost_pids = false\n{procfs}\n")
    with driver(scenario) as nvml:
        assert pynvml.nvmlDeviceGetComputeRunningProcesses_v3(nvml.handles[0]) == []
        with pytest.raises(pynvml.NVMLError_NotFound):
            pynvml.nvmlDeviceGetProcessUtilization(nvml.handles[0], 0)
        assert pynvml.nvmlDeviceGetMemoryInfo(nvml.handles[0], pynvml.nvmlMemory_v2).used >> 20 == 11_200
    with simulated_machine(scenario, clock=VirtualClock()) as simulated:
        assert names_are_host_pids(simulated.machine.procfs) is host_pids
        assert (simulated.machine.procfs / "5120" / "comm").exists() is host_pids
        assert (simulated.machine.procfs / "net/dev").read_text().count("enp6s0") == int(host_pids)


def test_an_exporter_in_another_pid_namespace_says_what_it_lacks(tmp_path: Path) -> None:
    with rig(changed(tmp_path, "rtx-4070-ti-super", "\n[exporter]\nhost_pids = false\n")) as running:
        running.run(10)
        limitations = {
            labels["feature"]: labels["reason"] for labels, _ in running.series("gpu_exporter_degraded_info")
        }
        assert limitations == {"processes": "other_pid_namespace"}
    more = "\n[exporter]\nhost_pids = false\nhost_procfs = false\n"
    with rig(changed(tmp_path, "rtx-4070-ti-super", more)) as running:
        running.run(10)
        limitations = {
            labels["feature"]: labels["reason"] for labels, _ in running.series("gpu_exporter_degraded_info")
        }
        assert limitations == dict.fromkeys(("processes", "host_network", "host_nfs"), "other_pid_namespace")


def test_what_an_exporter_can_see_is_described(tmp_path: Path) -> None:
    scenario = changed(tmp_path, "rtx-4070-ti-super", "\n[exporter]\nhost_pids = false\n")
    assert "\nExporter: in a PID namespace of its own, with the host's /proc\n" in describe_scenario(scenario)
    assert "Exporter:" not in describe_scenario(load_scenario("rtx-4070-ti-super"))


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ("host_pid = false", "exporter.host_pid: unknown key; did you mean host_pids?"),
        ("host_procfs = false", "exporter.host_procfs: a /proc in the host's PID namespace is the host's"),
        ("host_pids = 0", "exporter.host_pids: is 0; write true or false"),
        ("options = 3", "exporter.options: is not a table"),
    ],
)
def test_a_wrong_exporter_says_what_would_be_right(tmp_path: Path, table: str, message: str) -> None:
    with pytest.raises(ScenarioError) as error:
        changed(tmp_path, "idle-downshift", f"\n[exporter]\n{table}\n")
    assert message in str(error.value)
