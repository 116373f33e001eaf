"""nvidia-smi -L, topo -m, nvlink and the table, by themselves and beside other outputs."""

from pathlib import Path

import pytest
from tests.offline_files import UUID, codes, measured, report_on_text, smi, smi_gpu, summary
from tests.offline_tables import TABLE_END, TABLE_HEAD, TABLE_PROCESSES, table_row

from gpu_triage.judge.findings.table import Area
from gpu_triage.judge.findings.verdicts import Verdict

LEGEND = """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NV#  = Connection traversing a bonded set of # NVLinks

NIC Legend:

  NIC0: mlx5_0
"""
WITH_NICS = """        GPU0    GPU1    GPU2    NIC0    CPU Affinity    NUMA Affinity   GPU NUMA ID
GPU0     X      NV12    SYS     PIX     0-23,48-71      0               N/A
GPU1    NV12     X      SYS     NODE    0-23,48-71      0               N/A
GPU2    SYS     SYS      X      SYS     24-47,72-95     1               N/A
NIC0    PIX     NODE    SYS      X
"""
WITH_TABS = "\t\x1b[4mGPU0\tGPU1\tGPU2\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m\n" + "".join(
    f"GPU{own}\t{levels}\t{node}\t\tN/A\n"
    for own, levels, node in (
        (0, " X \tNV12\tSYS\t0-23", 0),
        (1, "NV12\t X \tSYS\t0-23", 0),
        (2, "SYS\tSYS\t X \t24-47", 1),
    )
)
OLD = """        GPU0    GPU1    GPU2    mlx4_0  CPU Affinity
GPU0     X      NV12    SOC     PHB     0-9,20-29
GPU1    NV12     X      SOC     PHB     0-9,20-29
GPU2    SOC     SOC      X      SOC     10-19,30-39
mlx4_0  PHB     PHB     SOC      X
"""
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


def test_the_numa_nodes_are_those_of_the_gpus_of_other_outputs(tmp_path: Path) -> None:
    gpus = [smi_gpu(place, processes=["7 a"]) for place in range(3)]
    report = report_on_text(tmp_path, smi(*gpus) + "\n$ nvidia-smi topo -m\n" + WITH_NICS)
    assert "GPU 0-1 on NUMA node 0, GPU 2 on NUMA node 1" in str(summary(report, Area.WORK))
    assert len(report.gpus) == 3


def test_listed_gpus_give_the_others_their_indices(tmp_path: Path) -> None:
    listed = f"GPU 5: NVIDIA H100 80GB HBM3 (UUID: {UUID.format(0)})\n  MIG 1g.10gb Device  0: (UUID: MIG-00)\n"
    report = report_on_text(tmp_path, smi(smi_gpu(), attached=8), listed)
    assert [(gpu.gpu, gpu.pci_bus_id) for gpu in report.gpus] == [("5", "0000:41:00.0")]


def test_a_gpu_of_which_nobody_tells_the_index_is_told_by_its_address(tmp_path: Path) -> None:
    assert [gpu.gpu for gpu in report_on_text(tmp_path, smi(smi_gpu(), attached=8)).gpus] == ["0000:41:00.0"]


ERRORS = f"""GPU 0: Tesla V100-SXM2-32GB (UUID: {UUID.format(0)})
         Link 0: Replay Errors: {{replays}}
         Link 0: Recovery Errors: 0
         Link 0: CRC Errors: {{crc}}

         Link 1: Replay Errors: 0
         Link 1: Recovery Errors: 0
         Link 1: CRC Flit Errors: 2
         Link 1: CRC Data Errors: 3
"""


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
    assert (codes(report), summary(report, Area.PEERS)) == ([], None)
    assert len(report.gpus) == 2


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
