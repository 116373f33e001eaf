"""A host whose files cannot be read: the verdict on its GPUs stands, and what was not read is said."""

import dataclasses
import json
from pathlib import Path

import pytest

from gpu_triage.cli.measure import measure
from gpu_triage.judge.report.machine_readable import render_json
from gpu_triage.judge.report.report import Report
from gpu_triage.judge.report.text import render_text
from gpu_triage.options.config import Config
from gpu_triage_simulator import VirtualClock, load_scenario, simulated_machine
from gpu_triage_simulator.scenario_file import SCENARIOS

pytestmark = pytest.mark.slow


def look_at(
    scenario: str, *, procfs: Path | None = None, sysfs: Path | None = None, kmsg: Path | None = None
) -> Report:
    """The verdict on a host, with these in place of its own."""
    with simulated_machine(load_scenario(scenario), clock=VirtualClock()) as simulated:
        machine = simulated.machine
        machine = dataclasses.replace(
            machine, procfs=procfs or machine.procfs, sysfs=sysfs or machine.sysfs, kmsg=kmsg or machine.kmsg
        )
        return measure(machine, Config(), 10.0).report


def lines_of(report: Report, name: str) -> list[str]:
    return [line for line in report.not_read if name in line]


def test_an_empty_procfs_is_told_in_text_and_json_and_leaves_the_gpus_their_verdict(tmp_path: Path) -> None:
    report = look_at("idle-downshift", procfs=tmp_path)
    (mount,) = lines_of(report, "--path.procfs")
    (collectors,) = lines_of(report, "host_cpu")
    of_host = {"host_cpu", "host_memory", "host_disk", "host_network", "host_nfs", "host_file_systems", "host_pressure"}
    assert {*of_host, "modules"} == set(collectors.partition(":")[0].split(", "))
    assert "missing" in collectors
    assert not lines_of(report, "this kernel has none")
    assert {gpu.verdict.value for gpu in report.gpus} == {"keep"}
    text = render_text(report)
    assert mount in text
    assert collectors in text
    assert {mount, collectors} <= set(json.loads(render_json(report))["not_read"])


def test_an_empty_sysfs_is_told(tmp_path: Path) -> None:
    report = look_at("idle-downshift", sysfs=tmp_path)
    assert lines_of(report, "--path.sysfs")
    (collectors,) = lines_of(report, "host_infiniband")
    assert {"platform", "host_services", "pcie_aer"} <= set(collectors.partition(":")[0].split(", "))


def test_a_host_without_a_driver_still_says_which_of_its_files_were_not_read(tmp_path: Path) -> None:
    report = look_at("no-driver", procfs=tmp_path)
    assert report.blocked is not None
    assert lines_of(report, "host_cpu")
    assert not lines_of(report, "power")


def test_a_container_with_a_procfs_of_its_own_misses_nothing_that_every_host_has(tmp_path: Path) -> None:
    path = tmp_path / "contained.toml"
    contained = "\n[exporter]\nhost_pids = false\nhost_procfs = false\n"
    path.write_text((SCENARIOS / "idle-downshift.toml").read_text() + contained)
    assert not lines_of(look_at(str(path)), "missing")


def test_without_the_kernel_log_the_xids_that_nvml_never_tells_are_named(tmp_path: Path) -> None:
    # DCGM "can't report XID 79, 119, and 120 due to limitations in the NVML library": NVIDIA/DCGM, issue 162.
    (line,) = lines_of(look_at("idle-downshift", kmsg=tmp_path / "missing"), "kernel log")
    assert "Xids 79, 119, 120 never" in line
    assert not lines_of(look_at("idle-downshift"), "kernel log")
