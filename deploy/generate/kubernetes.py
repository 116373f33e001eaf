"""Plain Kubernetes manifests: the rendered Helm chart without Helm's labels, one file per kind of object."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import helm_python
import yaml

EXPORTER: Final = Path("deploy/kubernetes/exporter")
OPERATOR: Final = Path("deploy/kubernetes/operator")

_CHART: Final = Path("helm/gpu-triage-exporter")
_NAME: Final = "gpu-triage-exporter"
_NAMESPACE: Final = "gpu-triage"
_VALUES: Final = {
    "image": {"repository": _NAME},
    "networkPolicy": {"enabled": True},
    "serviceMonitor": {"enabled": True},
    "prometheusRule": {"enabled": True},
}
_HELMS_LABELS: Final = ("app.kubernetes.io/managed-by", "helm.sh/chart")
_KINDS: Final = {
    EXPORTER: ("Namespace", "ServiceAccount", "Service", "DaemonSet", "NetworkPolicy"),
    OPERATOR: ("ServiceMonitor", "PrometheusRule"),
}
_NOTICE: Final = "# Made by `make regenerate` from the chart; change it with a kustomization of your own.\n"


def kubernetes_files(repository: Path) -> dict[Path, str]:
    """The text of every manifest, by path."""
    with helm_python.Chart.load(repository / _CHART) as chart:
        rendered = chart.render(_VALUES, name=_NAME, namespace=_NAMESPACE)
    texts = (text for path, text in sorted(rendered.items()) if path.endswith(".yaml") and "/tests/" not in path)
    objects = [_namespace(), *(each for text in texts for each in yaml.safe_load_all(text) if each is not None)]
    files = {}
    for folder, kinds in _KINDS.items():
        for kind in kinds:
            found = [_without_helm(each) for each in objects if each["kind"] == kind]
            files[folder / f"{kind.lower()}.yaml"] = _NOTICE + "---\n".join(map(_text, found))
        files[folder / "kustomization.yaml"] = _NOTICE + _text(_kustomization(kinds, images=folder == EXPORTER))
    return files


def _namespace() -> dict[str, Any]:
    """The namespace; pods mount the node's /proc and /sys, which the baseline pod security level forbids."""
    labels = {"pod-security.kubernetes.io/enforce": "privileged", "pod-security.kubernetes.io/warn": "privileged"}
    return {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _NAMESPACE, "labels": labels}}


def _kustomization(kinds: tuple[str, ...], *, images: bool) -> dict[str, Any]:
    """The list of manifests; if they include a pod, also where to set its image."""
    found: dict[str, Any] = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": [f"{kind.lower()}.yaml" for kind in kinds],
    }
    image = {"name": _NAME, "newName": f"registry.example.org/{_NAME}"}
    return found | ({"images": [image]} if images else {})


def _without_helm(each: Any) -> Any:
    if isinstance(each, Mapping):
        return {key: _without_helm(value) for key, value in each.items() if key not in _HELMS_LABELS}
    return [_without_helm(value) for value in each] if isinstance(each, list) else each


class _Dumper(yaml.SafeDumper):
    """Writes multi-line strings as block scalars, and indents lists below their keys."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:  # noqa: ARG002, FBT001, FBT002 - PyYAML's signature
        return super().increase_indent(flow, indentless=False)

    def represent_text(self, text: str) -> yaml.ScalarNode:
        return self.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Dumper.add_representer(str, _Dumper.represent_text)


def _text(each: object) -> str:
    return yaml.dump(each, Dumper=_Dumper, sort_keys=False, width=100)
