"""The chart describes every value."""

import re

import yaml
from tests.chart.rendering import CHART

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
