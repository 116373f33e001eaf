"""Renders the chart with Helm itself, as objects to look at."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import helm_python
import yaml

CHART = Path(__file__).resolve().parents[2] / "helm" / "gpu-triage-exporter"
HERE = Path(__file__).parent
NAMESPACE = "monitoring"
RELEASE = "gpu"
IMAGE = "registry.example.org/gpu-triage-exporter"
"""Laid below the values of every rendering: without an image the chart refuses to render."""

MATRIX: dict[str, dict[str, Any]] = yaml.safe_load((HERE / "matrix.yml").read_text(encoding="utf-8"))
"""Values that the chart is rendered with."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """What a rendering brings."""

    objects: tuple[dict[str, Any], ...]  # every object, in the order of Helm's files
    notes: str  # what Helm prints after an installation

    def of_kind(self, kind: str) -> list[dict[str, Any]]:
        return [each for each in self.objects if each["kind"] == kind]

    def only(self, kind: str) -> dict[str, Any]:
        """The one object of a kind; fails when there are more or none."""
        (found,) = self.of_kind(kind)
        return found

    @property
    def pod(self) -> dict[str, Any]:
        spec: dict[str, Any] = self.only("DaemonSet")["spec"]["template"]["spec"]
        return spec

    @property
    def container(self) -> dict[str, Any]:
        (found,) = self.pod["containers"]
        container: dict[str, Any] = found
        return container


def render(values: dict[str, Any] | None = None, chart: Path = CHART, release: str = RELEASE) -> Rendered:
    """The chart with these values; raises HelmError where Helm refuses them."""
    given = values or {}
    laid = {**given, "image": {"repository": IMAGE, **given.get("image", {})}}
    with helm_python.Chart.load(chart) as loaded:
        files = loaded.render(laid, name=release, namespace=NAMESPACE)
    objects: list[dict[str, Any]] = []
    for path, text in sorted(files.items()):
        if path.endswith(".yaml"):
            objects += [document for document in yaml.load_all(text, yaml.CSafeLoader) if document is not None]
    (notes,) = (text for path, text in files.items() if path.endswith("NOTES.txt"))
    return Rendered(tuple(objects), notes)
