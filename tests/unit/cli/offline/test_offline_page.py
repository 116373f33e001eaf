"""The page on offline triage shows what the program prints."""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from pkgutil import iter_modules

from click import unstyle
from tests.offline_files import report_on, sick_bug_report

from gpu_triage.cli import offline
from gpu_triage.cli.offline.files_report import READERS
from gpu_triage.cli.offline.lines import About
from gpu_triage.judge.report.text import render_text


def test_every_reader_declares_what_it_reads_and_is_listed() -> None:
    modules = [importlib.import_module(f"{offline.__name__}.{each.name}") for each in iter_modules(offline.__path__)]
    named = [value for module in modules for value in vars(module).values()]
    declared = {value for value in named if isinstance(value, About)}
    declared |= {value.ABOUT for value in named if isinstance(value, type) and hasattr(value, "ABOUT")}
    assert declared == set(READERS)
    assert len(READERS) == len(declared)


def test_what_reports_call_an_input_is_what_the_page_calls_it(tmp_path: Path) -> None:
    path = tmp_path / "nvidia-bug-report.log"
    path.write_text(sick_bug_report(), encoding="utf-8")
    (file,) = report_on(path).files
    assert set(file.kinds) <= {reader.kind for reader in READERS}


def test_the_report_on_the_page_is_that_of_the_program(repository: Path, tmp_path: Path) -> None:
    (shown,) = re.findall(r"```text\n(.*?)```", (repository / "docs/offline.md").read_text(encoding="utf-8"), re.DOTALL)
    path = tmp_path / "nvidia-bug-report.log.gz"
    path.write_text(sick_bug_report(), encoding="utf-8")
    assert unstyle(render_text(report_on(path))).replace(f"{tmp_path}/", "").startswith(shown)
