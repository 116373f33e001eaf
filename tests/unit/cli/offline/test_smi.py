"""What nvidia-smi -q says, as text and as XML, -L, topo -m, nvlink and the table, alone and beside other outputs."""

import re
from pathlib import Path

import pytest
from click import unstyle
from tests.offline_files import (
    TABLE_END,
    TABLE_HEAD,
    TABLE_PROCESSES,
    UUID,
    XML,
    assert_found,
    codes,
    file_of,
    measured,
    report_on_text,
    smi,
    smi_gpu,
    summary,
    table_row,
)

from gpu_triage.errors import ConfigError
from gpu_triage.judge.findings.table import Area
from gpu_triage.judge.findings.verdicts import Verdict
from gpu_triage.judge.report.text import render_text


def test_a_sound_gpu_is_read_and_kept(tmp_path: Path) -> None:
    report = report_on_text(tmp_path, smi(smi_gpu()))
    assert codes(report) == []
    assert [(gpu.name, gpu.pci_bus_id, gpu.verdict) for gpu in report.gpus] == [
        ("NVIDIA H100 80GB HBM3", "0000:41:00.0", Verdict.KEEP)
    ]
    assert report.driver == "580.95.05"
    assert report.verdict is Verdict.KEEP
    assert [(file.kinds, file.written) for file in report.files] == [(("nvidia-smi -q",), "2026-03-14 10:00:00")]


def test_a_file_without_a_list_of_processes_calls_no_gpu_idle(tmp_path: Path) -> None:
    text = smi(smi_gpu(facts={"busy": "0 %"})).partition("    Processes")[0].replace(": 1\n", ": 4\n")
    report = report_on_text(tmp_path, text)
    assert report.gpus[0].bottleneck.name == "unattributed"
    assert any("3 of 4 GPUs that nvidia-smi counts" in line for line in report.not_read)


def test_one_section_of_nvidia_smi_tells_what_it_holds(tmp_path: Path) -> None:
    text = smi(
        "GPU 00000000:41:00.0\n    ECC Mode\n        Current : Enabled\n        Pending : Enabled\n"
        "    ECC Errors\n        Volatile\n            DRAM Uncorrectable : 0\n"
    )
    report = report_on_text(tmp_path, text)
    assert summary(report, Area.HEALTH) == "ECC on for 1 of 1; ECC errors since the driver was loaded: 0 uncorrected"
    assert summary(report, Area.PCIE) is None


def test_links_and_errors_of_the_moment_are_told(tmp_path: Path) -> None:
    gpus = [smi_gpu(facts={"generation": "1", "state": "P8", "busy": "0 %", "correctable": "4"}), smi_gpu(1)]
    report = report_on_text(tmp_path, smi(*gpus))
    assert str(summary(report, Area.PCIE)).endswith("now 1 x gen 1 x16, 1 x gen 5 x16")
    assert "since the driver was loaded: 4 corrected, 0 uncorrected" in str(summary(report, Area.HEALTH))
    assert str(summary(report, Area.HEALTH)).endswith("over the lifetime of GPU 0-1: 7 corrected, 0 uncorrected")


def test_one_snapshot_tells_no_share_of_time(tmp_path: Path) -> None:
    report = report_on_text(tmp_path, smi(smi_gpu(facts={"hw thermal": "Active", "limit": "400.00 W"})))
    assert not any("of the time" in finding.measured for finding in report.findings)
    assert "GPU 0 held by hw_slowdown, hw_thermal at that moment" in str(summary(report, Area.CLOCKS))
    assert any(line.startswith("rates, such as the share of time it throttled") for line in report.not_read)


def test_one_output_as_text_and_xml_is_one_moment(tmp_path: Path) -> None:
    report = report_on_text(tmp_path, smi(smi_gpu()), smi(smi_gpu(), smi_gpu(1)))
    assert (len(report.gpus), report.measured_seconds) == (2, 0)


def test_files_of_different_hosts_are_refused(tmp_path: Path) -> None:
    other = smi(smi_gpu(facts={"uuid": "GPU-99999999-1111-2222-3333-444444444444"}), at="Sat Mar 14 11:00:00 2026")
    with pytest.raises(ConfigError, match="different hosts"):
        report_on_text(tmp_path, smi(smi_gpu()), other)


def test_what_is_not_in_the_files_is_not_called_ok(tmp_path: Path) -> None:
    report = report_on_text(tmp_path, smi(smi_gpu(), smi_gpu(1)))
    assert (summary(report, Area.HOST), summary(report, Area.PEERS)) == (None, None)
    assert "not read  host resources       not in these files" in unstyle(render_text(report))
    assert "no source of Xid errors" in str(summary(report, Area.HEALTH))


HANDLE = "Unable to determine the device handle for"


@pytest.mark.parametrize(
    ("texts", "code", "subject"),
    [
        ((smi(smi_gpu()), f"{HANDLE} GPU0000:42:00.0: GPU is lost.  Reboot"), "gpu.lost", "GPU 1"),
        ((smi(smi_gpu()), f"{HANDLE} GPU 0000:42:00.0: Unknown Error"), "gpu.lost", "GPU 1"),
        ((smi(smi_gpu()), f"{HANDLE} GPU1: 0000:42:00.0: Unknown Error"), "gpu.lost", "GPU 1"),
        # By its address if how many come before it is unknown, and by its index if there is nothing else.
        ((f"{HANDLE} GPU 0000:C1:00.0: Unknown Error\n",), "gpu.lost", "GPU 0000:c1:00.0"),
        ((f"{HANDLE} GPU3: Unknown Error\n",), "gpu.lost", "GPU 3"),
        ((f"{smi(smi_gpu())}\nWARNING: infoROM is corrupted at gpu 0000:41:00.0\n",), "gpu.inforom", "GPU 0"),
    ],
)
def test_a_gpu_with_a_complaint_is_named(tmp_path: Path, texts: tuple[str, ...], code: str, subject: str) -> None:
    report = report_on_text(tmp_path, *texts)
    assert [(finding.check.code, finding.subject) for finding in report.findings] == [(code, subject)]


@pytest.mark.parametrize(
    ("text", "found", "blocked"),
    [
        ("Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 535.161",
         ["driver.unavailable"], "version_mismatch"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.",
         ["driver.unavailable"], "driver_not_loaded"),
        ("No devices were found\n", [], "found no device"),
    ],
)  # fmt: skip
def test_why_there_are_no_gpus_is_told(tmp_path: Path, text: str, found: list[str], blocked: str) -> None:
    report = report_on_text(tmp_path, text)
    assert codes(report) == found
    assert blocked in (report.blocked or "")


DRIVER_390 = file_of("driver-390.txt")


def nvlinks(*states: str) -> str:
    """What nvidia-smi nvlink --status prints; of each GPU a letter a link: u for up, d for down."""
    said = {"u": "26.562 GB/s", "d": "<inactive>"}
    return "".join(
        f"GPU {place}: NVIDIA H100 80GB HBM3 (UUID: {UUID.format(place)})\n"
        + "".join(f"\t Link {number}: {said[state]}\n" for number, state in enumerate(links))
        for place, links in enumerate(states)
    )


def sick(facts: dict[str, str]) -> tuple[str, ...]:
    return (smi(smi_gpu(facts=facts, processes=["77 python3"])),)


def silent(words: str) -> tuple[str, ...]:
    """A GPU of which most values are these words, after one that answers."""
    facts = ("busy", "heat", "power", "limit", "state", "generation", "width", "replays")
    return (smi(smi_gpu(), smi_gpu(1, facts=dict.fromkeys(facts, words))),)


def renamed(name: str) -> tuple[str, ...]:
    """A section under this name at two moments, between which a counter in it rose."""
    second = smi_gpu(facts={"reasons": name, "hw thermal us": "30000000 us"})
    return smi(smi_gpu(facts={"reasons": name})), smi(second, at="Sat Mar 14 10:01:00 2026")


def linked(*states: str) -> tuple[str, ...]:
    return smi(smi_gpu(), smi_gpu(1), smi_gpu(2)), nvlinks(*states)


XML_FOUND = {"ecc.uncorrected": "", "pcie.width_from_boot": ""}
FOUND: list[tuple[tuple[str, ...], dict[str, str]]] = [
    (sick({"uncorrectable": "3"}), {"ecc.uncorrected": ""}),
    (sick({"remap pending": "Yes"}), {"memory.row_remap_pending": ""}),
    (sick({"remap failure": "Yes"}), {"memory.row_remap_failure": ""}),
    (sick({"channel": "Yes", "unrepairable": "Yes"}), {"memory.unrepairable": "", "memory.repair_pending": ""}),
    (sick({"recovery": "GPU Reset"}), {"recovery.action": ""}),
    (sick({"recovery": "Drain and Reset"}), {"recovery.drain_and_reset": ""}),
    (sick({"width": "8x"}), {"pcie.width_from_boot": ""}),
    (sick({"width": "8x", "state": "P8", "busy": "0 %"}), {"pcie.width_from_boot": ""}),
    (sick({"generation": "3"}), {"pcie.generation": ""}),
    (sick({"margin": "2 C"}), {"thermal.margin": ""}),
    (sick({"limit": "400.00 W"}), {"power.limit": ""}),
    (sick({"persistence": "Disabled"}), {"policy.persistence": ""}),
    # At rest, a link has a low generation, and one output does not tell how long a busy GPU draws little power.
    (sick({"generation": "1", "state": "P8", "busy": "0 %"}), {}),
    (sick({"busy": "100 %", "power": "120.00 W"}), {}),
    (silent("GPU is lost"), {"gpu.lost": "GPU lost: the driver cannot reach it"}),
    (silent("[GPU requires reset]"), {"gpu.lost": "GPU unusable: the driver asks for a reset of it"}),
    (silent("Unknown Error"), {"gpu.lost": "does not answer (unknown)"}),
    (renamed("Clocks Event Reasons"), {"thermal.hw": ""}),
    (renamed("Clocks Throttle Reasons"), {"thermal.hw": ""}),
    (
        (DRIVER_390,),  # old drivers call errors single and double bit
        {
            "ecc.uncorrected": "1 uncorrected errors since the driver was loaded",
            "memory.retired_pages_pending": "",
            "power.limit": "limit 200 W, default 250 W",
        },
    ),
    *(((text,), XML_FOUND) for text in (XML, XML.replace("\n", ""), XML.partition("</processes>")[0])),
    ((XML.replace("</supported_clocks>", ""),), XML_FOUND),
    # A link that is down on every GPU leads nowhere.
    (linked("uuu", "uuu", "uuu"), {}),
    (linked("uud", "uud", "uud"), {}),
    (linked("ddd", "ddd", "ddd"), {}),
    (linked("uuu", "udu", "uuu"), {"nvlink.down": "down: link 1"}),
]


@pytest.mark.parametrize(("texts", "found"), FOUND)
def test_what_outputs_say_of_gpus(tmp_path: Path, texts: tuple[str, ...], found: dict[str, str]) -> None:
    report = report_on_text(tmp_path, *texts)
    assert_found(report, found)
    if "gpu.lost" in found:
        assert [gpu.verdict for gpu in report.gpus] == [Verdict.KEEP, Verdict.DRAIN]
    if found is XML_FOUND:
        assert report.gpus[0].name == "Tesla & Co"
        assert report.gpus[0].readings.compute_processes == 1
    if len(report.gpus) == 3:
        assert not any("nvlink --status" in line for line in report.not_read)


LEGEND, WITH_NICS, OLD = map(file_of, ("topology-legend.txt", "topology.txt", "topology-old.txt"))
WITH_TABS = "\t\x1b[4mGPU0\tGPU1\tGPU2\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n" + "".join(
    f"GPU{own}\t{levels}\t{node}\t\tN/A\n"
    for own, levels, node in (
        (0, " X \tNV12\tSYS\t0-23", 0),
        (1, "NV12\t X \tSYS\t0-23", 0),
        (2, "SYS\tSYS\t X \t24-47", 1),
    )
)
WITHOUT_ITS_FIRST_SPACES = WITH_NICS.lstrip()
BROKEN = WITH_NICS.replace("    NIC0    CPU", "    NIC0\n    CPU").replace("     PIX     0-23", "     PIX\n     0-23")


@pytest.mark.parametrize(
    "text",
    [WITH_NICS, WITH_TABS, OLD, WITHOUT_ITS_FIRST_SPACES, BROKEN, "NVIDIA Topology: \n" + WITH_NICS],
    ids=["adapters", "tabs and colors", "old", "first spaces lost", "broken lines", "titled"],
)
def test_how_gpus_reach_each_other_is_told(tmp_path: Path, text: str) -> None:
    report = report_on_text(tmp_path, f"$ nvidia-smi topo -m\n{text}{LEGEND}")
    assert str(summary(report, Area.PEERS)).startswith("topology: 1 x NV12, 2 x SYS")
    assert [gpu.gpu for gpu in report.gpus] == ["0", "1", "2"]
    assert codes(report) == []


OF_GB200 = """        GPU0    GPU1    GPU2    CPU Affinity    NUMA Affinity   GPU NUMA ID
GPU0     X      NV18    NV18    0-71    0,3-9,11-17             2
GPU1    NV18     X      NV18    0-71    0,3-9,11-17             10
GPU2    NV18    NV18     X      72-143  1,19-25,27-33           18
"""
"""From sgl-project/sglang #11208 (driver 570.172.08), without its last GPU and its adapters."""
CDMM = re.sub(r"(?<=-\d\d) +\d+$", " N/A", OF_GB200, flags=re.MULTILINE)


@pytest.mark.parametrize(("topology", "found"), [("", []), (OF_GB200, []), (CDMM, ["work.memory_imbalance"])])
def test_used_memory_is_judged_only_if_no_page_cache_can_be_in_it(
    tmp_path: Path, topology: str, found: list[str]
) -> None:
    used = "index, name, memory.used [MiB], memory.free [MiB], utilization.gpu [%]\n0, NVIDIA GB200, 184000, 4000, 9\n"
    used += "".join(f"{place}, NVIDIA GB200, 1000, 187000, 0\n" for place in (1, 2))
    report = report_on_text(tmp_path, used, *([f"$ nvidia-smi topo -m\n{topology}"] if topology else []))
    work, nodes = str(summary(report, Area.WORK)), "GPU 0-1 on NUMA node 0, GPU 2 on NUMA node 1"
    assert (codes(report), "page cache" in work, nodes in work) == (found, not found, bool(topology))
    assert any("topo -m" in each for each in report.not_read) is (not topology)
    assert len(report.gpus) == 3


def test_listed_gpus_give_the_others_their_indices_which_else_are_told_by_their_address(tmp_path: Path) -> None:
    listed = f"GPU 5: NVIDIA H100 80GB HBM3 (UUID: {UUID.format(0)})\n  MIG 1g.10gb Device  0: (UUID: MIG-00)\n"
    report = report_on_text(tmp_path, smi(smi_gpu(), attached=8), listed)
    assert [(gpu.gpu, gpu.pci_bus_id) for gpu in report.gpus] == [("5", "0000:41:00.0")]
    assert [gpu.gpu for gpu in report_on_text(tmp_path, smi(smi_gpu(), attached=8)).gpus] == ["0000:41:00.0"]


ERRORS = file_of("nvlink-errors.txt")


def test_the_errors_of_links_are_told(tmp_path: Path) -> None:
    report = report_on_text(tmp_path, ERRORS.format(replays=148, crc=65535))
    told = "NVLink errors since the driver was loaded: GPU 0 link 0: 148 replay, 65535 CRC; GPU 0 link 1: 5 CRC"
    assert summary(report, Area.PEERS) == told
    assert report.files[0].kinds == ("nvidia-smi nvlink",)


def test_a_command_that_was_run_twice_does_not_count_twice(tmp_path: Path) -> None:
    text = ERRORS.format(replays=1, crc=0)
    assert "link 1: 5 CRC" in str(summary(report_on_text(tmp_path, text + text), Area.PEERS))


def test_errors_that_rise_between_two_outputs_are_a_finding(tmp_path: Path) -> None:
    first = smi(smi_gpu(), smi_gpu(1)) + "\n$ nvidia-smi nvlink -e\n" + ERRORS.format(replays=1, crc=0)
    second = smi(smi_gpu(), smi_gpu(1), at="Sat Mar 14 10:01:00 2026") + "\n$ x\n" + ERRORS.format(replays=900, crc=0)
    assert codes(report_on_text(tmp_path, first, second)) == ["nvlink.errors"]


@pytest.mark.parametrize(
    "said",
    [
        "NVML: Unable to retrieve Nvlink information as all links are inActive",
        "Nvlink queries are not supported for Devices in MIG mode",
        "Device does not have or support Nvlink",
    ],
)
def test_links_that_are_not_told_are_no_links_that_are_down(tmp_path: Path, said: str) -> None:
    text = "".join(f"GPU {place}: Tesla (UUID: {UUID.format(place)})\n{said}\n" for place in range(2))
    report = report_on_text(tmp_path, text)
    assert codes(report) == []
    assert summary(report, Area.PEERS) == ("all NVLinks of GPU 0-1 are inactive" if "inActive" in said else None)


def test_a_sentence_about_a_gpu_is_no_gpu(tmp_path: Path) -> None:
    assert report_on_text(tmp_path, "GPU 0: the slow one\nGPU 1: this is fine\n").gpus == ()


FAILED = """|   1  ERR!                           On  |   00000000:42:00.0 Off |                 ERR! |
|ERR!  ERR!   ERR!         ERR! /  ERR!   |{memory:^24}|    ERR!      Default |
|                                         |                        |                 ERR! |
"""


def test_the_table_alone_tells_what_it_can(tmp_path: Path) -> None:
    report = report_on_text(tmp_path, TABLE_HEAD + table_row(0, 0x07, "2") + TABLE_PROCESSES + TABLE_END)
    assert codes(report) == ["ecc.uncorrected"]
    (gpu,) = report.gpus
    assert (gpu.name, gpu.pci_bus_id) == ("NVIDIA A100-SXM4-40GB", "0000:07:00.0")
    assert report.files[0].written == "2026-03-14 10:00:00"


@pytest.mark.parametrize(
    ("memory", "told"),
    [("0MiB /  40960MiB", "does not answer (unknown)"), ("GPU is lost", "GPU lost: the driver cannot reach it")],
)
def test_a_row_full_of_errors_is_a_gpu_that_does_not_answer(tmp_path: Path, memory: str, told: str) -> None:
    text = TABLE_HEAD + table_row(0, 0x41) + FAILED.format(memory=memory) + TABLE_PROCESSES + TABLE_END
    report = report_on_text(tmp_path, text)
    assert [(each.check.code, each.subject) for each in report.findings] == [("gpu.lost", "GPU 1")]
    assert measured(report, "gpu.lost") == told
    assert "no compute process" not in str(summary(report, Area.WORK))


def test_single_errors_of_a_row_are_named_and_cost_nothing_else(tmp_path: Path) -> None:
    text = (
        TABLE_HEAD + table_row(0, 0x41).replace("60W /  400W", "ERR! /  400W").replace("| N/A ", "|ERR! ") + TABLE_END
    )
    report = report_on_text(tmp_path, text)
    assert report.verdict is Verdict.KEEP
    assert report.gpus[0].readings.temperature_celsius == 34
    assert "what the driver could not read of GPU 0: fan speed, instantaneous power draw" in report.not_read


def test_health_is_not_ok_for_ecc_that_is_off(tmp_path: Path) -> None:
    report = report_on_text(tmp_path, TABLE_HEAD + table_row(0, 0x41, "Off") + TABLE_END)
    assert summary(report, Area.HEALTH) is None


def test_the_table_of_a_windows_host_tells_nothing_of_persistence(tmp_path: Path) -> None:
    text = f"PS C:\\Users\\me> nvidia-smi\n{TABLE_HEAD}{table_row(0, 0x41).replace('  On  |', ' WDDM |', 1)}{TABLE_END}"
    report = report_on_text(tmp_path, text)
    assert codes(report) == []
    assert summary(report, Area.SETTINGS) is None


def test_a_gpu_without_processes_and_utilization_holds_none(tmp_path: Path) -> None:
    text = TABLE_HEAD + table_row(0, 0x41) + table_row(1, 0x42).replace("100%", " N/A") + TABLE_PROCESSES + TABLE_END
    report = report_on_text(tmp_path, text)
    assert [gpu.readings.compute_processes for gpu in report.gpus] == [1, 0]
    assert "a compute process" not in str(report.gpus[1].bottleneck.because)
