"""A rented machine: how it is recognized, what is not expected of its links, and what its user is not told to do."""

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.fed import MINUTE, after, loaded
from tests.host_tree import HostTree
from tests.html_elements import Elements
from tests.judged import Judged, judged
from tests.offline_files import codes, report_on_text, smi, smi_gpu
from tests.rig import rig, scenario_with
from tests.status_pages import body_of

from gpu_triage.driver.kernel.procfs import is_virtual_machine
from gpu_triage.judge.conditions.links import LINK_ADVICE
from gpu_triage.judge.findings.table import CHECKS, Action, Area
from gpu_triage.judge.findings.verdicts import Verdict
from gpu_triage.judge.report.machine_readable import render_json, report_from_json
from gpu_triage.options.config import Config
from gpu_triage.read.gpu.pcie import GPU_PCIE_LINK_WIDTH
from gpu_triage.read.metrics.metric import Sample
from gpu_triage_simulator import Scenario

FLAGS = "processor\t: 0\nflags\t\t: fpu vme sse2{}\n\nprocessor\t: 1\nflags\t\t: fpu vme sse2{}\n"


def flags(more: str) -> dict[str, str]:
    return {"proc/cpuinfo": FLAGS.format(more, more)}


def firmware(vendor: str, product: str) -> dict[str, str]:
    return {"sys/class/dmi/id/sys_vendor": f"{vendor}\n", "sys/class/dmi/id/product_name": f"{product}\n"}


ARM = {"proc/cpuinfo": "processor\t: 0\nBogoMIPS\t: 2100.00\nFeatures\t: fp asimd sve\n"}


@pytest.mark.parametrize(
    ("files", "virtual"),
    [
        (flags(" hypervisor"), True),
        (flags(""), False),
        (flags(" hypervisor") | firmware("Lambda", "Cloud GPU"), True),
        (flags(" hypervisors"), False),
        # The CPU knows better than a name.
        (flags("") | firmware("QEMU", "Standard PC"), False),
        (ARM | firmware("Amazon EC2", "g5g.xlarge"), True),
        (ARM | firmware("Amazon EC2", "g5g.metal"), False),
        (ARM | firmware("Google", "Google Compute Engine"), True),
        (ARM | firmware("Microsoft Corporation", "Virtual Machine"), True),
        (ARM | firmware("Microsoft Corporation", "Surface Pro"), False),
        (ARM | firmware("QEMU", "KVM Virtual Machine"), True),
        (ARM | firmware("VMware, Inc.", "VMware20,1"), True),
        (ARM | firmware("Supermicro", "ARS-111GL-NHR"), False),
        (ARM, None),
        ({}, None),
    ],
)
def test_a_virtual_machine_is_recognized_by_its_cpus_or_its_firmware(
    host: HostTree, files: dict[str, str], *, virtual: bool | None
) -> None:
    host.write(files)
    assert is_virtual_machine(host.procfs, host.sysfs) is virtual


NARROW = 'at = 0\neffect = { kind = "link", width = 8 }'
OLD_DRIVER = 'at = 0\neffect = { kind = "error", function = "nvmlDeviceGetVirtualizationMode", code = "NOT_SUPPORTED" }'
RED_HAT, XEN, MICROSOFT, VMWARE, INTEL = "0x1b36", "0x5853", "0x1414", "0x15ad", "0x8086"


def one_gpu(tmp_path: Path, *events: str, virtual: bool, visible: bool) -> Scenario:
    """A card whose link has 8 of 16 lanes; `visible` is whether there is a port above it."""
    scenario = scenario_with(tmp_path, "rtx-4070-ti-super", NARROW, *events)
    slot = scenario.gpus[0].slot
    gpu = replace(scenario.gpus[0], slot=slot if visible else replace(slot, ports=()))
    machine = replace(scenario.machine, virtual=virtual)
    processes = tuple(process for process in scenario.processes if process.gpu == 0)
    events_of_it = tuple(replace(event, gpus=(0,) if event.gpus else ()) for event in scenario.events)
    return replace(scenario, machine=machine, gpus=(gpu,), processes=processes, events=events_of_it)


def links(host: Judged) -> set[str]:
    return {each.check.code for each in host.report.findings if each.check.topic == "pcie_link"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("virtual", "bridge", "found"),
    [
        (False, INTEL, {"pcie.width_from_boot"}),
        (False, None, {"pcie.width_from_boot"}),
        (True, None, set()),
        (True, RED_HAT, set()),
        (True, XEN, set()),
        (True, MICROSOFT, set()),
        (True, VMWARE, set()),
        # A slot that can be read is one.
        (True, INTEL, {"pcie.width_from_boot"}),
    ],
)
@pytest.mark.parametrize("driver", [(), (OLD_DRIVER,)], ids=["the driver says", "the kernel says"])
def test_a_link_is_not_short_of_what_a_hidden_slot_may_not_give(
    tmp_path: Path, *, virtual: bool, bridge: str | None, found: set[str], driver: tuple[str, ...]
) -> None:
    with judged(one_gpu(tmp_path, *driver, virtual=virtual, visible=bridge is not None)) as host:
        if bridge is not None:
            port = host.running.simulated.machine.sysfs / "bus/pci/devices/0000:00:01.0/vendor"
            host.running.run(0)
            port.write_text(f"{bridge}\n")
        host.run_to(65)
        assert links(host) == found
        assert host.running.value("gpu_pcie_link_expected_width", gpu="0") == (16 if found else None)
        assert host.classes() == {"0": "pcie_link" if found else "compute"}


@pytest.mark.slow
@pytest.mark.parametrize("virtual", [True, False])
def test_what_the_driver_and_the_kernel_say_is_published(tmp_path: Path, *, virtual: bool) -> None:
    with rig(one_gpu(tmp_path, virtual=virtual, visible=not virtual), Config(metrics_profile="full")) as running:
        running.run(5)
        assert running.value("gpu_virtualization_mode", gpu="0") == virtual
        assert running.value("gpu_host_virtual_machine") == virtual
    with rig(one_gpu(tmp_path, OLD_DRIVER, virtual=virtual, visible=not virtual)) as running:
        running.run(5)
        assert running.value("gpu_virtualization_mode", gpu="0") is None


UNREADABLE = (
    *("NumFans", "FanSpeed_v2", "NumaNodeId", "PowerManagementLimit", "EnforcedPowerLimit"),
    *("PowerManagementDefaultLimit", "PowerManagementLimitConstraints", "TopologyCommonAncestor"),
)
"""Of nvmlDeviceGet…: what a hypervisor may keep to itself."""


@pytest.mark.slow
def test_the_page_of_a_guest_claims_nothing_of_what_it_cannot_see(tmp_path: Path) -> None:
    error = 'at = 0\neffect = {{ kind = "error", function = "nvmlDeviceGet{}", code = "NOT_SUPPORTED" }}'
    guest = one_gpu(tmp_path, *map(error.format, UNREADABLE), virtual=True, visible=False)
    (gpu,) = guest.gpus
    with judged(replace(guest, gpus=(replace(gpu, slot=replace(gpu.slot, node=-1)),))) as host:
        host.run_to(65)
        page = Elements(body_of(host.running.judge.latest)).text
        report = host.report
    assert (report.findings, {each.verdict for each in report.gpus}) == ((), {Verdict.KEEP})
    said = {each.area: each.summary for each in report.areas}
    assert "a virtual machine" in (said[Area.SETTINGS] or "")
    assert [what for what in ("power limits", "PCIe links") if what not in "".join(report.not_judged)] == []
    assert re.search(r"148 W46 °Cgen 4 x8(?!/)", page.replace("\n", ""))
    assert re.search(r"NUMA|None|nan|-1\b|x8 of|/16", page.partition("Collectors")[0]) is None


@pytest.mark.parametrize(("before", "found"), [(16, {"pcie.width"}), (8, set())])
def test_a_link_of_a_hidden_slot_that_had_more_lanes_has_lost_them(before: int, found: set[str]) -> None:
    def samples(at: float) -> Iterator[Sample]:
        yield from loaded(at, 0.95)
        yield GPU_PCIE_LINK_WIDTH.sample(before if at < MINUTE else 8, "0", "GPU-a")

    fed = after(4 * MINUTE, samples)
    assert {code for code in fed.codes() if code != "pcie.width_changes" and code.startswith("pcie.")} == found


HANDS_ON = re.compile(r"(?i)reseat|seating|riser|\bslot|cable|bios|\bfans?\b|airflow|power (suppl|it off)|DIMM|bridges")


def test_no_advice_for_a_virtual_machine_needs_a_hand_on_the_hardware() -> None:
    for advice in (*(check.advice for check in CHECKS), *LINK_ADVICE.values()):
        virtual = advice.in_a_virtual_machine
        assert not HANDS_ON.search(virtual.decision + virtual.at_a_desk)
        assert virtual.in_a_virtual_machine == virtual
    changed = [check for check in CHECKS if check.advice != check.advice.in_a_virtual_machine]
    assert len(changed) > 40
    assert not {check.action for check in changed} & {Action.NONE, Action.FIX_JOB}


def test_who_does_not_know_the_host_is_told_both() -> None:
    for check in CHECKS:
        advice = check.advice
        assert advice.anywhere.startswith(advice.decision[:-1])
        assert (advice.anywhere == advice.decision) is (advice == advice.in_a_virtual_machine)


@pytest.mark.slow
@pytest.mark.parametrize("virtual", [True, False])
def test_a_report_on_a_virtual_machine_tells_nobody_to_check_its_seating(tmp_path: Path, *, virtual: bool) -> None:
    errors = 'at = 0\ngpu = 0\neffect = { kind = "pcie_errors", replays_per_hour = 3600 }'
    with judged(one_gpu(tmp_path, errors, virtual=virtual, visible=True)) as host:
        host.run_to(65)
        report = host.report
    (found,) = (each for each in report.findings if each.check.code == "pcie.replays")
    advice = found.check.advice
    assert found.advice == (advice.in_a_virtual_machine if virtual else advice)
    assert found.advice.meaning == advice.meaning
    (settings,) = (each.summary for each in report.areas if each.area is Area.SETTINGS)
    assert ("a virtual machine" in (settings or "")) is virtual
    read = report_from_json(render_json(report))
    assert [each.advice for each in read.findings] == [each.advice for each in report.findings]


@pytest.mark.parametrize(("mode", "found"), [("None", ["pcie.width_from_boot"]), ("Pass-Through", []), ("VGPU", [])])
def test_files_of_a_virtual_machine_do_not_call_a_link_short(tmp_path: Path, mode: str, found: list[str]) -> None:
    text = smi(smi_gpu(facts={"width": "8x"}, processes=["77 python3"]))
    section = f"    GPU Virtualization Mode\n        Virtualization Mode                : {mode}\n"
    marker = "    Serial Number"
    assert marker in text
    assert codes(report_on_text(tmp_path, text.replace(marker, section + marker))) == found
