"""The page on offline triage shows what the program prints."""

import importlib
import re
from pathlib import Path
from pkgutil import iter_modules

from click import unstyle
from tests.gathered import every
from tests.offline_files import report_on, sick_bug_report

from gpu_triage.cli import offline
from gpu_triage.cli.offline.files_report import RECORDING
from gpu_triage.cli.offline.scan import BUG_REPORT
from gpu_triage.cli.offline.smi_columns import APPS, DMON, PMON, QUERY
from gpu_triage.cli.offline.smi_links import LIST
from gpu_triage.judge.report.text import render_text


def test_every_kind_of_input_is_on_the_page(repository: Path) -> None:
    page = (repository / "docs/offline.md").read_text(encoding="utf-8")
    modules = [importlib.import_module(f"{offline.__name__}.{each.name}") for each in iter_modules(offline.__path__)]
    named = [value for module in modules for value in vars(module).values()]
    kinds = {value.KIND for value in named if isinstance(value, type) and hasattr(value, "KIND")}
    kinds |= {BUG_REPORT, RECORDING, QUERY, APPS, DMON, PMON, LIST}
    listed = set(re.findall(r"^- (.+?)(?: \(.*|: .*)$", page, re.MULTILINE))
    assert [kind for kind in every(sorted(kinds)) if kind not in listed] == []


def test_the_report_on_the_page_is_that_of_the_program(repository: Path, tmp_path: Path) -> None:
    (shown,) = re.findall(r"```text\n(.*?)```", (repository / "docs/offline.md").read_text(encoding="utf-8"), re.DOTALL)
    path = tmp_path / "nvidia-bug-report.log.gz"
    path.write_text(sick_bug_report(), encoding="utf-8")
    assert unstyle(render_text(report_on(path))).replace(f"{tmp_path}/", "").startswith(shown)
