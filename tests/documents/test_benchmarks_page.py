"""docs/benchmarks.md has a section for each benchmark, and a benchmark replaces its own."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest
from tests.bench.page import PAGE, write_section


def test_every_section_that_a_benchmark_writes_is_on_the_page(repository: Path) -> None:
    programs = "".join(path.read_text(encoding="utf-8") for path in (repository / "tests/bench").glob("*.py"))
    written = re.findall(r"write_section\(\"(\w+)\"", programs)
    assert sorted(written) == sorted(re.findall(r"^<!-- (\w+) -->$", PAGE.read_text(encoding="utf-8"), re.MULTILINE))


def test_a_benchmark_replaces_its_section_and_no_other(tmp_path: Path) -> None:
    page = Path(shutil.copy(PAGE, tmp_path))
    write_section("soak", "## New\n", page)
    before, after = (path.read_text(encoding="utf-8").partition("<!-- soak -->") for path in (PAGE, page))
    assert after[0] == before[0]
    assert after[2] == "\n\n## New\n\n<!-- /soak -->\n"


def test_a_section_that_the_page_does_not_have_is_an_error() -> None:
    with pytest.raises(ValueError, match="no markers for other"):
        write_section("other", "")
