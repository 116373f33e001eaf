"""What the chart copies equals its originals, and its README says what its values do."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from helm import build_chart
from helm.rules import rule_files
from tests.chart.rendering import CHART


def test_the_charts_files_are_those_that_are_made_and_none_is_missing(repository: Path) -> None:
    found = {path.relative_to(repository): path.read_bytes() for path in (CHART / "files").rglob("*.*")}
    assert found == build_chart.copies(repository), "run `make regenerate`"


def test_the_schema_is_up_to_date(repository: Path) -> None:
    schema = (CHART / "values.schema.json").read_text(encoding="utf-8")
    assert schema == build_chart.schema(repository), "run `make regenerate`"


def test_every_alert_of_the_repository_is_in_the_chart(repository: Path) -> None:
    def alerts(folder: Path) -> set[str]:
        read = (yaml.safe_load(file.read_text(encoding="utf-8")) for file in folder.glob("*.yml"))
        rules = (rule for file in read for group in file.get("groups", ()) for rule in group["rules"])
        # The chart has those that are off unless asked for as well.
        return {rule["alert"] for rule in rules if "alert" in rule and rule.get("enabled") != "false"}

    assert alerts(CHART / "files" / "rules") == alerts(repository / "rules")


def test_the_readme_is_up_to_date(repository: Path) -> None:
    assert (CHART / "README.md").read_text(encoding="utf-8") == build_chart.readme(repository), "run `make regenerate`"


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


def test_files_whose_source_is_gone_are_removed(tmp_path: Path) -> None:
    chart = tmp_path / build_chart.CHART
    for folder in (tmp_path / "rules", tmp_path / "dashboards", chart / "files/rules"):
        folder.mkdir(parents=True)
    for name in ("README.template.md", "values.yaml", "values.schema.json"):
        (chart / name).write_text((CHART / name).read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "rules/alertmanager-inhibit.yml").write_text("inhibit_rules: [] # the snippet\n")
    (tmp_path / "dashboards/detail.json").write_text("{}")
    (chart / "files/rules/gone.yml").write_text("groups: []\n")
    build_chart.write(tmp_path)
    found = {path.relative_to(chart / "files").as_posix() for path in (chart / "files").rglob("*.*")}
    assert found == {f"rules/{name}" for name in rule_files()} | {"dashboards/detail.json"}
    assert "# the snippet" in (chart / "README.md").read_text(encoding="utf-8")


def test_a_description_above_no_value_is_an_error() -> None:
    with pytest.raises(ValueError, match="of nothing"):
        build_chart.values("a: 1\n# -- Description of nothing\n\nb: 2\n")
