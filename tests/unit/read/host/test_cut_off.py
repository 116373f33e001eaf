from __future__ import annotations

from pathlib import Path

import pytest

from gpu_triage.driver.kernel.inquiry import HostInquiry
from gpu_triage.driver.kernel.procfs import parse_pressure
from gpu_triage.errors import HostReadFailed

PRESSURE = "some avg10=0.00 avg60=0.00 avg300=0.00 total=3407564\n"


def test_a_file_that_ends_within_a_number_is_malformed(tmp_path: Path) -> None:
    path = tmp_path / "cpu"
    path.write_text(PRESSURE[:-3])
    inquiry = HostInquiry([])
    assert inquiry.parse(path, parse_pressure) is None
    with pytest.raises(HostReadFailed, match="malformed"):
        inquiry.finish()


def test_of_lines_only_the_one_that_is_cut_off_is_lost(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_text("1\n22\n33")
    failures: list[str] = []
    inquiry = HostInquiry(failures)
    assert inquiry.lines(path, int) == [1, 22]
    inquiry.finish()
    assert failures == ["malformed"]
