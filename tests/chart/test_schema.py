"""The schema refuses every value that the chart does not know, by its name, and all others are described."""

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import helm_python
import pytest
import yaml
from tests.chart.rendering import CHART, HERE, render

from gpu_triage.alerting.shipped import shipped_sources

SCHEMA = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))

REFUSED = yaml.safe_load((HERE / "refused.yml").read_text(encoding="utf-8"))


@pytest.mark.parametrize(("values", "named"), REFUSED.values(), ids=REFUSED)
def test_a_bad_value_is_refused_by_name(values: dict[str, Any], named: str) -> None:
    with pytest.raises(helm_python.HelmError, match=named):
        render(values)


def test_no_object_takes_names_it_does_not_know() -> None:
    alerts = "/properties/rules/properties/overrides/properties/alerts/properties"
    codes = {alert.key for source in shipped_sources() for alert in source.alerts if alert.codes}
    # The template says that the exporter decides these.
    of_exporter = {f"{alerts}/{key}/properties/thresholds" for key in codes}
    open_objects = {
        path
        for path, node in _nodes(SCHEMA, "")
        if "object" in _types(node) and "additionalProperties" not in node and not path.endswith("properties")
    }
    # What only the API server knows the inside of, and what a parent chart puts there.
    assert open_objects - of_exporter == {"/properties/global", "/$defs/kubernetesObject"}
    assert of_exporter <= open_objects


def _types(node: dict[str, Any]) -> list[str]:
    types = node.get("type", [])
    return [types] if isinstance(types, str) else list(types)


def _nodes(node: object, path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    if isinstance(node, dict):
        if isinstance(node.get("type"), (str, list)):
            yield path, node
        for name, below in node.items():
            yield from _nodes(below, f"{path}/{name}")


def test_every_value_is_described() -> None:
    """By a comment above it, or above one that it is below."""
    lines = (CHART / "values.yaml").read_text(encoding="utf-8").splitlines()
    undescribed, above = [], list[tuple[int, bool]]()
    for before, line in pairwise(lines):
        if key := re.match(r"( *)([A-Za-z][A-Za-z0-9]*):( .)?", line):
            above = [each for each in above if each[0] < len(key[1])]
            described = before.lstrip().startswith("#") or any(told for _, told in above)
            above.append((len(key[1]), described))
            undescribed += [] if described or not key[3] else [key[2]]
    assert above
    assert undescribed == []
