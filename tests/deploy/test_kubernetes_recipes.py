"""Every values file of a platform renders, alone and laid over others, to what that platform asks for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from tests.chart.rendering import Rendered, render

RECIPES = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes" / "values"
CUSTOM = {"ServiceMonitor", "PrometheusRule"}
MOUNTED_LIST = "/var/run/nvidia-container-devices/all"


def _values(*names: str) -> dict[str, Any]:
    """Values of recipes, each laid over those before it, as ``helm --values`` does it."""
    found: dict[str, Any] = {}
    for name in names:
        read = yaml.safe_load((RECIPES / f"{name}.yaml").read_text(encoding="utf-8"))
        assert not found.keys() & read.keys(), "recipes that are laid over each other set different values"
        found |= read
    return found


def _recipe(*names: str) -> Rendered:
    return render(_values(*names))


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.yaml")), ids=lambda path: path.stem)
def test_kubernetes_takes_what_a_recipe_renders(path: Path) -> None:
    for each in _recipe(path.stem).objects:
        if each["kind"] not in CUSTOM:
            kubernetes_validate.validate(each, "1.31.0", strict=True)


@pytest.mark.parametrize(
    ("recipes", "runtime_class"),
    [
        (("gpu-operator",), "nvidia"),
        (("gpu-operator", "device-list-mount", "kube-prometheus-stack"), "nvidia"),
        (("gpu-operator-nri",), None),
        (("gke",), None),
        (("eks",), None),
        (("eks", "device-list-mount"), None),
    ],
    ids=str,
)
def test_a_recipe_names_the_runtime_class_that_its_platform_has(
    recipes: tuple[str, ...], runtime_class: str | None
) -> None:
    rendered = _recipe(*recipes)
    assert rendered.pod.get("runtimeClassName") == runtime_class
    assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in rendered.pod["tolerations"]
    mounted = [mount["mountPath"] for mount in rendered.container["volumeMounts"]]
    assert (MOUNTED_LIST in mounted) == ("device-list-mount" in recipes)


def test_only_gke_takes_a_privileged_container_and_none_takes_root() -> None:
    for path in RECIPES.glob("*.yaml"):
        rendered = _recipe(path.stem)
        security = rendered.container["securityContext"]
        assert security.get("privileged", False) == (path.stem == "gke")
        # Kubernetes refuses a privileged container with allowPrivilegeEscalation false.
        assert ("allowPrivilegeEscalation" in security) != security.get("privileged", False)
        assert rendered.pod["securityContext"]["runAsNonRoot"] is True


def test_gke_finds_the_library_in_the_folder_that_it_mounts() -> None:
    container = _recipe("gke").container
    (library,) = (each["value"] for each in container["env"] if each["name"] == "LD_LIBRARY_PATH")
    (mount,) = (each for each in container["volumeMounts"] if each["name"] == "nvidia-driver")
    assert library == f"{mount['mountPath']}/lib64"
    assert mount["readOnly"] is True


def test_the_annotation_for_the_nri_plugin_names_the_exporters_container() -> None:
    rendered = _recipe("gpu-operator-nri")
    annotations = rendered.only("DaemonSet")["spec"]["template"]["metadata"]["annotations"]
    key = f"nvidia.cdi.k8s.io/container.{rendered.container['name']}"
    assert annotations[key] == "management.nvidia.com/gpu=all"


def test_what_the_stack_chooses_by_has_its_label() -> None:
    rendered = _recipe("kube-prometheus-stack")
    chosen = [*rendered.of_kind("ServiceMonitor"), *rendered.of_kind("PrometheusRule")]
    assert len(chosen) > 1
    assert {each["metadata"]["labels"]["release"] for each in chosen} == {"kube-prometheus-stack"}
    assert "WARNING" not in rendered.notes
    folders = {each["metadata"]["annotations"]["grafana_folder"] for each in rendered.of_kind("ConfigMap")}
    assert folders == {"GPUs"}


def test_argo_cd_applies_on_the_server_under_the_name_that_the_selectors_have(repository: Path) -> None:
    application = yaml.safe_load((repository / "deploy/kubernetes/argo-cd.yaml").read_bytes())
    source, policy = application["spec"]["source"], application["spec"]["syncPolicy"]
    assert "ServerSideApply=true" in policy["syncOptions"]
    assert policy["managedNamespaceMetadata"]["labels"]["pod-security.kubernetes.io/enforce"] == "privileged"
    chart = repository / source["path"]
    assert {(chart / file).resolve().parent for file in source["helm"]["valueFiles"]} == {RECIPES}
    recipes = [Path(file).stem for file in source["helm"]["valueFiles"]]
    values = _values(*recipes) | source["helm"]["valuesObject"]
    rendered = render(values, release=application["metadata"]["name"])
    assert rendered.container["image"].startswith("registry.example.org/")
    for each in rendered.objects:
        assert each["metadata"]["labels"]["app.kubernetes.io/instance"] == application["metadata"]["name"]


def test_the_documents_name_every_recipe_and_no_other(repository: Path) -> None:
    text = (repository / "docs/kubernetes.md").read_text(encoding="utf-8")
    named = set(re.findall(r"deploy/kubernetes/values/([\w-]+)\.yaml", text))
    assert named == {path.stem for path in RECIPES.glob("*.yaml")}
