"""The table of ``nvidia-smi``, of GPUs that do not answer, and where people had it from."""

from pathlib import Path

import pytest
from tests.offline_files import codes, measured, report_on_text, summary
from tests.offline_tables import TABLE_END, TABLE_HEAD, TABLE_PROCESSES, table_row

from gpu_triage.judge.findings.table import Area
from gpu_triage.judge.findings.verdicts import Verdict

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
