"""nvidia-smi --query-gpu and --query-compute-apps, with headings and without, with units and without."""

from pathlib import Path

import pytest
from tests.offline_files import UUID, codes, measured, report_on_text, smi, smi_gpu

from gpu_triage.judge.findings.table import Area
from gpu_triage.judge.findings.verdicts import Verdict
from gpu_triage.judge.report.report import Report

QUERY = (
    "timestamp,index,name,pci.bus_id,pstate,temperature.gpu,utilization.gpu,power.draw,power.limit,clocks.sm,"
    "clocks.max.sm,clocks_throttle_reasons.hw_slowdown,clocks_throttle_reasons.hw_power_brake_slowdown"
)
HEADINGS = (
    "timestamp, index, name, pci.bus_id, pstate, temperature.gpu, utilization.gpu [%], power.draw [W], "
    "power.limit [W], clocks.current.sm [MHz], clocks.max.sm [MHz], clocks_event_reasons.hw_slowdown, "
    "clocks_event_reasons.hw_power_brake_slowdown\n"
)
FREE = "2026/03/14 10:00:00.100, 0, Tesla T4, 00000000:3B:00.0, P0, 61, 97 %, 65.10 W, 70.00 W, 1590 MHz, 1590 MHz, "
FREE += "Not Active, Not Active\n"
BRAKED = "2026/03/14 10:00:00.104, 1, Tesla T4, 00000000:5E:00.0, P0, 45, 100 %, 24.20 W, 70.00 W, 300 MHz, 1590 MHz, "
BRAKED += "Active, Active\n"


def without_units(rows: str) -> str:
    for unit in (" %", " W", " MHz"):
        rows = rows.replace(f"{unit},", ",")
    return rows


def indices(report: Report) -> list[tuple[str, str]]:
    return [(gpu.gpu, gpu.pci_bus_id) for gpu in report.gpus]


@pytest.mark.parametrize(
    "text",
    [
        HEADINGS + FREE + BRAKED,
        HEADINGS + without_units(FREE + BRAKED),
        f"$ nvidia-smi --query-gpu={QUERY} --format=csv\n{HEADINGS}{FREE}{BRAKED}",
        f"root@gpu-7:~# nvidia-smi --query-gpu={QUERY} --format=csv,noheader\n{FREE}{BRAKED}root@gpu-7:~# uptime\n",
        f"[ml@gpu-7 run]$ nvidia-smi --format=csv,noheader,nounits --query-gpu={QUERY}\n{without_units(FREE + BRAKED)}",
        "Some words, before it.\n```\n" + HEADINGS + FREE + BRAKED + "```\nSome words, after it.\n",
        "".join(f"> {line}\n" for line in (HEADINGS + FREE + BRAKED).splitlines()),
        HEADINGS.lower() + "\n" + FREE + "\n" + BRAKED,
    ],
    ids=["whole", "no units", "with command", "no header", "neither", "fenced", "quoted", "spaced"],
)
def test_every_way_to_print_a_query_says_the_same(tmp_path: Path, text: str) -> None:
    report = report_on_text(tmp_path, text)
    assert indices(report) == [("0", "0000:3b:00.0"), ("1", "0000:5e:00.0")]
    assert codes(report) == ["power.brake"]
    assert measured(report, "power.brake") == "hw_power_brake at that moment, 45 °C, SM clock 300 of 1590 MHz"
    assert [gpu.verdict for gpu in report.gpus] == [Verdict.KEEP, Verdict.WATCH]
    assert [gpu.readings.power_watts for gpu in report.gpus] == [65.1, 24.2]
    assert [(file.kinds, file.written) for file in report.files] == [
        (("nvidia-smi --query-gpu",), "2026-03-14 10:00:00")
    ]


def test_the_last_sample_of_a_loop_counts(tmp_path: Path) -> None:
    later = BRAKED.replace("10:00:00", "10:05:00").replace("Active, Active", "Not Active, Not Active")
    report = report_on_text(tmp_path, HEADINGS + FREE + BRAKED + FREE.replace("10:00:00", "10:05:00") + later)
    assert codes(report) == []
    assert report.files[0].written == "2026-03-14 10:05:00"


def test_reasons_are_read_from_their_bits(tmp_path: Path) -> None:
    text = "index, clocks_throttle_reasons.active\n0, 0x0000000000000088\n"
    assert codes(report_on_text(tmp_path, text)) == ["power.brake"]


def test_a_single_field_is_read_and_ends_where_something_else_stands(tmp_path: Path) -> None:
    report = report_on_text(tmp_path, "utilization.gpu [%]\n98 %\nIs that slow?\nmemory.used is 3 MiB\n")
    assert [gpu.readings.busy_ratio for gpu in report.gpus] == [0.98]


def test_rows_of_gpus_without_a_name_are_told_by_their_order(tmp_path: Path) -> None:
    heading = "timestamp, utilization.gpu [%], power.draw [W]\n"
    first = "2026/03/14 10:00:00.977, 1 %, 20.00 W\n2026/03/14 10:00:00.981, 2 %, 30.00 W\n"
    second = "2026/03/14 10:00:01.977, 11 %, 21.00 W\n2026/03/14 10:00:01.981, 12 %, 31.00 W\n"
    report = report_on_text(tmp_path, heading + first + second)
    assert [gpu.readings.busy_ratio for gpu in report.gpus] == [0.11, 0.12]


def test_ecc_errors_of_two_outputs_are_not_added_up(tmp_path: Path) -> None:
    query = "pci.bus_id, ecc.errors.uncorrected.volatile.total\n00000000:41:00.0, 3\n"
    report = report_on_text(tmp_path, smi(smi_gpu(facts={"uncorrectable": "3"})) + "\n$ nvidia-smi\n" + query)
    assert measured(report, "ecc.uncorrected") == "3 uncorrected errors since the driver was loaded"


def test_the_processes_of_a_query_are_those_of_their_gpus(tmp_path: Path) -> None:
    text = (
        smi(smi_gpu(), smi_gpu(1)).replace("    Processes                                          : None\n", "")
        + "\n$ nvidia-smi --query-compute-apps=gpu_uuid,pid,process_name,used_memory --format=csv\n"
        + "gpu_uuid, pid, process_name, used_gpu_memory [MiB]\n"
        + f"{UUID.format(1)}, 77, python3, 40000 MiB\n{UUID.format(1)}, 78, python3, 30000 MiB\n"
    )
    report = report_on_text(tmp_path, text)
    assert [gpu.readings.compute_processes for gpu in report.gpus] == [None, 2]


def test_rows_without_headings_are_not_read_and_say_what_to_attach(tmp_path: Path) -> None:
    report = report_on_text(tmp_path, "54.48 W, 1935 MHz, 2100 MHz, 23 %, 7001 MHz, P0\n")
    assert report.verdict is Verdict.NOT_READ
    assert any("without headings" in line and "54.48 W, 1935 MHz" in line for line in report.not_read)


def test_a_row_that_lost_cells_is_named_and_not_read(tmp_path: Path) -> None:
    report = report_on_text(tmp_path, HEADINGS + FREE + BRAKED[:60] + "\n")
    assert indices(report) == [("0", "0000:3b:00.0")]
    assert any("10:00:00.104, 1, Tesla T4" in line for line in report.not_read)


def test_an_unlisted_gpu_is_not_called_lost(tmp_path: Path) -> None:
    report = report_on_text(tmp_path, smi(smi_gpu(), smi_gpu(1)), HEADINGS + FREE.replace("3B", "41"))
    assert codes(report) == []
    assert {area.area: area.severity for area in report.areas}[Area.DRIVER] is None


def test_the_commas_of_a_text_are_no_query(tmp_path: Path) -> None:
    text = "name, rank and number\n1, 2, 3\nindex out of range, again\n0, 1 %\n"
    assert report_on_text(tmp_path, text).gpus == ()
