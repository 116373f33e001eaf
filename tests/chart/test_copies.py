"""What the chart copies equals its originals, and its README says what its values do."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
import yaml
from helm import build_chart
from tests.chart.rendering import CHART, RULES

if TYPE_CHECKING:
    from pathlib import Path


def test_the_charts_copies_are_the_originals_and_none_is_missing(repository: Path) -> None:
    copied = {
        path.relative_to(repository): path.read_bytes()
        for folder in ("rules", "dashboards")
        for path in (CHART / "files" / folder).glob("*.*")
    }
    assert copied == build_chart.copies(repository), "run `make chart`"


def test_the_charts_copies_of_old_names_are_the_originals(repository: Path) -> None:
    copied = {path.relative_to(repository): path.read_bytes() for path in (CHART / "files/rules/compat").glob("*")}
    assert copied == build_chart.compatibility(repository), "run `make chart`"
    assert copied


def test_every_alert_of_the_repository_is_in_the_chart(repository: Path) -> None:
    def alerts(folder: Path) -> set[str]:
        return set(
            re.findall(r"^\s*-\s*alert:\s*(\w+)", "".join(f.read_text() for f in folder.glob("*.yml")), re.MULTILINE)
        )

    assert alerts(CHART / "files" / "rules") == alerts(repository / "rules")


def test_the_readme_is_up_to_date(repository: Path) -> None:
    assert (CHART / "README.md").read_text(encoding="utf-8") == build_chart.readme(repository), "run `make chart`"


def test_every_value_is_described() -> None:
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    described = {value.name for value in build_chart.values(text)}

    def undescribed(node: object, path: str) -> list[str]:
        if path in described:
            return []
        if isinstance(node, dict) and node:
            return [name for key, below in node.items() for name in undescribed(below, f"{path}.{key}".lstrip("."))]
        return [path]

    assert undescribed(yaml.safe_load(text), "") == []


def test_links_of_the_readme_lead_somewhere() -> None:
    links = re.findall(r"\]\((?!https?://|#)([^)#\s]+)", (CHART / "README.md").read_text(encoding="utf-8"))
    assert [link for link in links if not (CHART / link).exists()] == []


def _repository(tmp_path: Path) -> Path:
    chart = tmp_path / build_chart.CHART
    for folder in (tmp_path / "rules", tmp_path / "dashboards", chart / "files/rules"):
        folder.mkdir(parents=True)
    for name in ("README.template.md", "values.yaml"):
        (chart / name).write_text((CHART / name).read_text(encoding="utf-8"), encoding="utf-8")
    return tmp_path


def test_rules_are_copied_and_what_only_lies_beside_them_is_not(tmp_path: Path) -> None:
    repository = _repository(tmp_path)
    (repository / "rules/gpu.yml").write_text(RULES)
    (repository / "rules/gpu_test.yml").write_text("rule_files: [gpu.yml]\n")
    (repository / "rules/alertmanager-inhibit.yml").write_text("inhibit_rules: [] # the snippet\n")
    (repository / "dashboards/detail.json").write_text("{}")
    (repository / build_chart.CHART / "files/rules/gone.yml").write_text("groups: []\n")
    build_chart.write(repository)
    copied = {path.name for path in (repository / build_chart.CHART / "files").rglob("*.*")}
    assert copied == {"gpu.yml", "detail.json"}
    readme = (repository / build_chart.CHART / "README.md").read_text(encoding="utf-8")
    assert "# the snippet" in readme


def test_a_description_above_no_value_is_an_error() -> None:
    with pytest.raises(ValueError, match="of nothing"):
        build_chart.values("a: 1\n# -- Description of nothing\n\nb: 2\n")
