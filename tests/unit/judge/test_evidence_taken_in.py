from __future__ import annotations

import ast
from pathlib import Path

import pytest

from gpu_triage.judge.evidence import history
from gpu_triage.judge.evidence.history import _NOT_JUDGED
from gpu_triage.read.registry import METRICS

PACKAGE = Path(history.__file__).parents[2]
READERS_OF_EVIDENCE = ("judge", "cli", "serve")


@pytest.mark.slow
def test_what_is_left_out_of_the_evidence_nobody_asks_for() -> None:
    constants = {spec.name.upper() for spec in METRICS if spec in _NOT_JUDGED}
    assert len(constants) == len(_NOT_JUDGED)
    files = [path for folder in READERS_OF_EVIDENCE for path in (PACKAGE / folder).rglob("*.py")]
    asked = {
        (path.name, name)
        for path in files
        if path != Path(history.__file__)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        for name in (getattr(node, "id", ""), getattr(node, "attr", ""))
        if name in constants
    }
    assert asked == set()
