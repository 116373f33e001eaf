"""Files of real machines, and what people pasted into public threads, where they lie beside the checkout.

They are other people's output and no part of the project, so it cannot be held to them; they are read where they lie.

The outputs in the field articles that the playbook was made from: they are private, and no part of the project.

The page on offline triage shows what the program prints.
"""

import importlib
import json
import re
from pathlib import Path
from pkgutil import iter_modules
from typing import Final

import pytest
from click import unstyle
from tests.gathered import every
from tests.offline_files import codes, of_real_files, report_on, report_on_text, rows_of, sick_bug_report

from gpu_triage.cli import offline
from gpu_triage.cli.offline.files_report import RECORDING
from gpu_triage.cli.offline.scan import BUG_REPORT
from gpu_triage.cli.offline.smi_columns import APPS, DMON, PMON, QUERY
from gpu_triage.cli.offline.smi_links import LIST
from gpu_triage.judge.findings.table import Area
from gpu_triage.judge.report.text import render_text

OF_THREADS = ("incidents", "pastes")
FILES = of_real_files(lambda folder: sorted(each for each in folder.rglob("*") if each.is_file()))
INCIDENTS = of_real_files(lambda folder: sorted(each for of in OF_THREADS for each in (folder / of).glob("*.txt")))

PERSISTENCE = {"policy.persistence"}
EXPECTED = {
    "a10g.xml": ("NVIDIA A10G", "515.105.01", PERSISTENCE, "gen 1 x8", True),
    "a100-sxm4-v12.xml": ("NVIDIA A100-SXM4-80GB", "535.54.03", PERSISTENCE, "gen 4 x16", True),
    "gtx-1660-ti.xml": ("Graphics Device", "418.43", PERSISTENCE, "gen 1 x16", False),
    "quadro-p2000-v12.xml": ("Quadro P2000", "525.125.06", None, "gen 1 x8", False),
    "rtx-3080-v12.xml": ("NVIDIA GeForce RTX 3080", "536.40", None, "gen 4 x16", False),
    "tesla-t4.xml": ("Tesla T4", "515.105.01", None, "gen 3 x8", True),
    "nvidia-geforce-rtx-2080-super__595.71.05.txt": (
        *("NVIDIA GeForce RTX 2080 SUPER", "595.71.05", PERSISTENCE, "gen 3 x16", False),
    ),
    "nvidia-geforce-rtx-4080-super__595.71.05.txt": (
        *("NVIDIA GeForce RTX 4080 SUPER", "595.71.05", None, "gen 4 x16", False),
    ),
    "nvidia-h100-80gb-hbm3__590.48.01.txt": ("NVIDIA H100 80GB HBM3", "590.48.01", set(), "gen 5 x16", True),
    "nvidia-h200-mig__590.48.01.txt": ("NVIDIA H200", "590.48.01", set(), "gen 5 x16", True),
}
"""Model, driver, findings (None where they are not held to), the link at the last moment, and whether ECC is on:
GeForce and small Quadro cards have none."""


@pytest.mark.parametrize("path", FILES)
def test_every_file_is_read(path: Path | None) -> None:
    if path is None:
        return
    report = report_on(path)
    assert render_text(report)
    if path.name in EXPECTED:
        name, driver, found, link, ecc = EXPECTED[path.name]
        assert {(gpu.name, report.driver) for gpu in report.gpus} == {(name, driver)}
        assert found is None or {finding.check.code for finding in report.findings} == found
        said = {area.area: area.summary or "" for area in report.areas}
        assert said[Area.PCIE].endswith(f"now 1 x {link}")
        assert ("ECC on for 1 of 1" in said[Area.HEALTH]) == ecc


@pytest.mark.parametrize("path", INCIDENTS)
def test_the_cause_that_was_found_in_a_thread_is_named(tmp_path: Path, path: Path | None) -> None:
    if path is None:
        return
    known = {each["file"]: each for each in json.loads((path.parent / "expected.json").read_text(encoding="utf-8"))}
    incident = known[path.name]
    report = report_on_text(tmp_path, path.read_text(encoding="utf-8"))  # the name of the file may match, too
    found, text = codes(report), render_text(report)
    assert not [code for code in incident["findings"] if code not in found]
    assert not [code for code in incident["not_findings"] if code in found]
    assert incident["verdict"] in (None, report.verdict.text)
    assert not [pattern for pattern in incident["report_matches"] if re.search(pattern, text) is None]


FACTS: Final = {(article, int(task)): facts.split("\n") for article, task, facts in rows_of("articles.tsv")}
"""What stands under "Meaning" and "Decision" of each task, in this program's words."""
TOGETHER: Final = {
    "000": (["sick", "idle"], ["xid.79", "pcie.width_idle", "storage.saturated", "work.imbalance"]),
    "003": (["storage"], ["storage.starved"]),
}
"""What all outputs of an article show: the classes of the host's GPUs, and findings in the playbook's order."""


def outputs(article: Path) -> dict[int, str]:
    """The command of each task with its output."""
    tasks = re.split(r"^Task (\d+): .*\n", article.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return {int(task): text.partition("\nMeaning:")[0] for task, text in zip(tasks[::2], tasks[1::2], strict=True)}


articles = pytest.mark.parametrize(
    "article", of_real_files(lambda folder: sorted((folder.parents[1] / "design/articles").glob("00[03]_*.txt")))
)


@articles
def test_each_output_is_answered_as_the_article_answers_it(tmp_path: Path, article: Path | None) -> None:
    if article is not None:
        shown, name = outputs(article), article.name[:3]
        assert {(name, task) for task in shown} == {each for each in FACTS if each[0] == name}
        for task, text in shown.items():
            told = " ".join(unstyle(render_text(report_on_text(tmp_path, text))).split())
            assert [fact for fact in FACTS[name, task] if fact not in told] == [], f"{task}: {told}"


@articles
def test_all_outputs_of_an_article_are_of_one_host(tmp_path: Path, article: Path | None) -> None:
    if article is not None:
        report = report_on_text(tmp_path, "\n".join(outputs(article).values()))
        classes, found = TOGETHER[article.name[:3]]
        assert [gpu.bottleneck.name for gpu in report.gpus] == classes
        assert [gpu.gpu for gpu in report.gpus] == [str(index) for index in range(len(classes))]
        assert [code for code in codes(report) if code in found] == found
        assert codes(report)[0] == found[0]


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
