"""The chart has every alert, and describes every value."""

import re
from pathlib import Path

import pytest
import yaml
from tests.chart.rendering import CHART
from tests.gathered import every


def test_every_alert_of_the_repository_is_in_the_chart(repository: Path) -> None:
    def alerts(folder: Path) -> set[str]:
        read = (yaml.safe_load(file.read_text(encoding="utf-8")) for file in folder.glob("*.yml"))
        rules = (rule for file in read for group in file.get("groups", ()) for rule in group["rules"])
        # The chart has those that are off unless asked for as well.
        return {rule["alert"] for rule in rules if "alert" in rule and rule.get("enabled") != "false"}

    assert alerts(CHART / "files" / "rules") == alerts(repository / "rules")


KEY = re.compile(r"( *)([A-Za-z][A-Za-z0-9]*):(?: |$)")


def described(text: str) -> set[str]:
    """The dotted names of the values with a description, a comment that begins with ``# --``, above them."""
    found: set[str] = set()
    path: list[str] = []
    description = False
    for line in text.splitlines():
        if key := KEY.match(line):
            path[len(key[1]) // 2 :] = [key[2]]
            if description:
                found.add(".".join(path))
            description = False
        else:
            comment = line.lstrip()
            assert comment.startswith("#") or not description, f"a description of nothing above {line!r}"
            description = comment.startswith("# --") or (description and comment.startswith("#"))
    return found


def test_every_value_is_described() -> None:
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    names = described(text)

    def undescribed(node: object, path: str) -> list[str]:
        if path in names:
            return []
        if isinstance(node, dict) and node:
            return [name for key, below in node.items() for name in undescribed(below, f"{path}.{key}".lstrip("."))]
        return [path]

    assert undescribed(yaml.safe_load(text), "") == []


def test_a_description_above_no_value_is_an_error() -> None:
    with pytest.raises(AssertionError, match="of nothing"):
        described("a: 1\n# -- Description of nothing\n\nb: 2\n")


def test_links_of_the_readme_lead_somewhere() -> None:
    links = re.findall(r"\]\((?!https?://|#)([^)#\s]+)", (CHART / "README.md").read_text(encoding="utf-8"))
    assert [link for link in every(links) if not (CHART / link).exists()] == []
