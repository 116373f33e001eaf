"""The page on offline triage shows what the program prints."""

from __future__ import annotations

import re
from pathlib import Path

from click import unstyle
from tests.offline_files import report_on, sick_bug_report

from gpu_triage.diagnosis.report.text import render_text


def test_the_report_on_the_page_is_that_of_the_program(repository: Path, tmp_path: Path) -> None:
    page = (repository / "docs/offline.md").read_text(encoding="utf-8")
    (shown,) = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    path = tmp_path / "nvidia-bug-report.log.gz"
    path.write_text(sick_bug_report(), encoding="utf-8")
    assert unstyle(render_text(report_on(path))).replace(f"{tmp_path}/", "").startswith(shown)
