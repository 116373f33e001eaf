"""Reference pages are what the code generates, and prose names only what exists."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpu_triage import catalogue, reference
from gpu_triage.catalogue import Kind, MetricSpec, Tier

LINK = re.compile(r"\]\((?!https?://|#|mailto:)([^)#\s]+)")
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
SECTION_COMMENT = re.compile(r"^# (.+)\n+([A-Z0-9_]+) = ", re.MULTILINE)


def _prose(repository: Path) -> list[Path]:
    handbook = repository / "exporter" / "gpu_triage" / "handbook"
    return [
        *repository.glob("*.md"),
        *repository.glob("*/README.md"),
        *repository.glob("docs/**/*.md"),
        *handbook.rglob("*.md"),
    ]


@pytest.mark.parametrize(("name", "text"), list(reference.pages()), ids=lambda value: str(value)[:20])
def test_a_generated_page_is_up_to_date(repository: Path, name: str, text: str) -> None:
    assert (repository / "docs" / name).read_text(encoding="utf-8") == text, f"docs/{name}: run `make docs`"


def test_the_generator_writes_every_page_into_the_directory_it_is_given(tmp_path: Path) -> None:
    assert reference.main([str(tmp_path / "new")]) == 0
    assert {path.name: path.read_text() for path in (tmp_path / "new").iterdir()} == dict(reference.pages())


def test_the_table_of_findings_is_up_to_date(repository: Path, tmp_path: Path) -> None:
    page = (repository / "docs/check.md").read_text(encoding="utf-8")
    assert reference.with_findings(page) == page, "docs/check.md: run `make docs`"
    (tmp_path / "check.md").write_text("above\n<!-- findings -->\nold\n<!-- /findings -->\nbelow\n")
    assert reference.main([str(tmp_path)]) == 0
    written = (tmp_path / "check.md").read_text()
    assert "\nold\n" not in written
    assert "| `gpu.lost` | drain | drain | 1 | red | critical | drain | GpuLost |" in written
    assert written.startswith("above\n<!-- findings -->")
    assert written.endswith("<!-- /findings -->\nbelow\n")


def test_the_generator_refuses_anything_but_one_directory(capsys: pytest.CaptureFixture[str]) -> None:
    assert reference.main([]) == 2
    assert "usage:" in capsys.readouterr().err


def test_sections_are_those_the_catalogue_is_written_in() -> None:
    written = SECTION_COMMENT.findall(Path(catalogue.__file__).read_text(encoding="utf-8"))
    documented = [(title, vars(catalogue)[name]) for title, name in written]
    assert list(reference.SECTION_STARTS) == documented


def test_every_metric_is_documented_once() -> None:
    specs = reference.catalogue_specs()
    assert [spec for section in reference.sections(specs) for spec in section.specs] == list(specs)
    page = reference.metrics_markdown(specs)
    assert [spec.name for spec in specs if page.count(f"| `{spec.name}` |") != 1] == []


def test_a_section_that_never_starts_is_an_error() -> None:
    first, second = reference.SECTION_STARTS[0], reference.SECTION_STARTS[1]
    with pytest.raises(ValueError, match=second[0]):
        reference.sections([first[1]], [first, second])
    with pytest.raises(ValueError, match="before the first section"):
        reference.sections([second[1]], [first])


def test_text_that_markdown_would_eat_is_escaped() -> None:
    spec = MetricSpec("gpu_x", Kind.GAUGE, Tier.FAST, "Either a|b, or <c>.", "/sys/*/x", ())
    page = reference.metrics_markdown([*_first_specs(), spec])
    assert "| Either a\\|b, or &lt;c>. | /sys/\\*/x |" in page


def _first_specs() -> list[MetricSpec]:
    return [first for _, first in reference.SECTION_STARTS]


def test_links_between_documents_lead_somewhere(repository: Path) -> None:
    dead = [
        f"{page.relative_to(repository)}: {target}"
        for page in _prose(repository)
        for target in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8")))
        if not (page.parent / target).exists()
    ]
    assert dead == []


def test_no_address_of_a_repository_that_does_not_exist_is_linked(repository: Path) -> None:
    folders = ("dashboards", "deploy", "docs", "exporter", "helm", "rules")
    files = (path for folder in folders for path in (repository / folder).rglob("*") if path.is_file())
    texts = (path for path in files if path.suffix in {".json", ".md", ".py", ".toml", ".yaml", ".yml"})
    made_up = "github.com/" + "gpu-triage"
    assert [str(path) for path in texts if made_up in path.read_text(encoding="utf-8", errors="replace")] == []
