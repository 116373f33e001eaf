"""nvidia-smi's queries, dmon and pmon: with headings, units and columns, and without."""

from pathlib import Path

import pytest
from tests.offline_files import UUID, assert_found, codes, file_of, measured, report_on_text, smi, smi_gpu, summary

from gpu_triage.judge.findings.table import Area
from gpu_triage.judge.findings.verdicts import Verdict
from gpu_triage.judge.report.report import GpuVerdict, Report

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


def padded(text: str) -> str:
    """With the spaces at the end of each line that newer drivers print."""
    return "".join(f"{line}   \n" if line else "\n" for line in text.splitlines())


NEW, TIMED, PMON = (padded(file_of(f"{name}.txt")) for name in ("dmon-new", "dmon-timed", "pmon"))
OLD, EVERYTHING = file_of("dmon-old.txt"), file_of("dmon-everything.txt")
HEADED_AGAIN = OLD.replace("    0   143", "# gpu   pwr  temp    sm   mem   enc   dec  mclk  pclk\n    0   143")


def readings(gpu: GpuVerdict) -> tuple[float | None, ...]:
    return gpu.readings.busy_ratio, gpu.readings.power_watts, gpu.readings.temperature_celsius


@pytest.mark.parametrize(
    "text",
    [
        OLD,
        NEW,
        TIMED,
        EVERYTHING,
        HEADED_AGAIN,
        "".join(f"> {line}\n" for line in OLD.splitlines()),
        "".join(f"> \\{line}\n" if line[0] == "#" else f"> {line}\n" for line in OLD.splitlines()),
        "".join(f"{' '.join(line.split())}\n" for line in NEW.splitlines()),
    ],
    ids=["old", "new", "timed", "everything", "headed again", "quoted", "quoted Markdown", "spaces lost"],
)
def test_the_last_sample_of_a_gpu_is_read_by_the_headings(tmp_path: Path, text: str) -> None:
    (gpu,) = report_on_text(tmp_path, text).gpus
    assert (gpu.gpu, *readings(gpu)) == ("0", 0.99, 143, 58)


def test_a_date_in_the_lines_is_that_of_the_file(tmp_path: Path) -> None:
    (file,) = report_on_text(tmp_path, TIMED).files
    assert (file.kinds, file.written) == (("nvidia-smi dmon",), "2026-03-14 10:00:00")


def test_a_violation_is_what_holds_the_gpu_back(tmp_path: Path) -> None:
    assert "GPU 0 held by sw_power_cap at that moment" in str(
        summary(report_on_text(tmp_path, EVERYTHING), Area.CLOCKS)
    )
    # It has no column for a slowdown by the hardware: that nothing holds the GPU back, it does not tell.
    for text in (OLD, EVERYTHING.replace("    35     0", "     0     0")):
        assert "throttle reason" not in str(summary(report_on_text(tmp_path, text), Area.CLOCKS))


def test_the_last_sample_of_pmon_lists_the_processes(tmp_path: Path) -> None:
    report = report_on_text(tmp_path, PMON)
    assert [(gpu.gpu, gpu.readings.compute_processes) for gpu in report.gpus] == [("0", 2), ("1", 0)]
    assert report.files[0].kinds == ("nvidia-smi pmon",)
    assert codes(report) == ["work.imbalance"]
    assert report_on_text(tmp_path, f"{FEW_COLUMNS} 0 - - - -\n").gpus[0].readings.compute_processes == 0


UNCORRECTED = "pci.bus_id, ecc.errors.uncorrected.volatile.total\n00000000:41:00.0, 3\n"
BY_ORDER = """timestamp, utilization.gpu [%], power.draw [W]
2026/03/14 10:00:00.977, 1 %, 20.00 W\n2026/03/14 10:00:00.981, 2 %, 30.00 W
2026/03/14 10:00:01.977, 11 %, 21.00 W\n2026/03/14 10:00:01.981, 12 %, 31.00 W
"""
FEW_COLUMNS = (
    "# gpu        pid  type    fb   command\n# Idx          #   C/G    MB   name\n    0      4242     C  9000   a b\n"
)
AT_REST = smi(*(smi_gpu(place, facts={"busy": "0 %"}) for place in range(2)))


@pytest.mark.parametrize(
    ("texts", "found", "busy"),
    [
        (("index, clocks_throttle_reasons.active\n0, 0x0000000000000088\n",), {"power.brake": ""}, [None]),
        # What two outputs count is not added up.
        (
            (f"{smi(smi_gpu(facts={'uncorrectable': '3'}))}\n$ nvidia-smi\n{UNCORRECTED}",),
            {"ecc.uncorrected": "3 uncorrected errors since the driver was loaded"},
            [0.97],
        ),
        # A GPU that an output does not list is not lost.
        ((smi(smi_gpu(), smi_gpu(1)), HEADINGS + FREE.replace("3B", "41")), {}, [0.97, 0.97]),
        # A single field ends where something else stands.
        (("utilization.gpu [%]\n98 %\nIs that slow?\nmemory.used is 3 MiB\n",), {}, [0.98]),
        # GPUs without a name are told by their order, and those of dmon by their index.
        ((BY_ORDER,), {}, [0.11, 0.12]),
        ((f"{AT_REST}\n$ nvidia-smi dmon -c 1\n{NEW}",), {}, [0.0, 0.0]),
        ((smi("GPU 00000000:41:00.0\n    Clocks\n") + "index, utilization.gpu [%]\n0, 42 %\n",), {}, [0.42]),
        # What is not measured is not zero.
        ((NEW.replace("    0    143     58     62     99", "    3      -      -      -      -"),), {}, [None]),
        # The commas of a text are no query.
        (("name, rank and number\n1, 2, 3\nindex out of range, again\n0, 1 %\n",), {}, []),
        ((FEW_COLUMNS,), {}, [None]),
    ],
)
def test_what_is_read_of_queries(
    tmp_path: Path, texts: tuple[str, ...], found: dict[str, str], busy: list[float | None]
) -> None:
    report = report_on_text(tmp_path, *texts)
    assert_found(report, found)
    assert not any("unknown form" in line for line in report.not_read)
    assert [gpu.readings.busy_ratio for gpu in report.gpus] == busy
    if FEW_COLUMNS in texts:
        assert report.gpus[0].readings.compute_processes == 1
