"""Files of real machines, and what people pasted into public threads, where they lie beside the checkout.

They are other people's output and no part of the project, so it cannot be held to them; they are read where they lie.
"""

import json
import re
from pathlib import Path

import pytest
from tests.offline_files import codes, of_real_files, report_on, report_on_text

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
