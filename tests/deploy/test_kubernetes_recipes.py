"""Values files of platforms render to what each asks for, and the plain manifests are the chart's objects."""

import re
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from deploy.generate.kubernetes import OPERATOR
from tests.chart.rendering import CHART, Rendered, render
from tests.rules.rulefile import alerts, read_rules, rule_files

RECIPES = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes" / "values"
PLATFORMS = tuple(path.stem for path in sorted(RECIPES.glob("*.yaml")) if path.stem != "device-list-mount")
CUSTOM = {"ServiceMonitor", "PrometheusRule"}


def _values(*names: str) -> dict[str, Any]:
    """Values of recipes, each laid over those before it, as ``helm --values`` does it."""
    found: dict[str, Any] = {}
    for name in names:
        read = yaml.safe_load((RECIPES / f"{name}.yaml").read_text(encoding="utf-8"))
        assert not found.keys() & read.keys(), "recipes that are laid over each other set different values"
        found |= read
    return found


@cache
def _recipe(*names: str) -> Rendered:
    return render(_values(*names))


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.yaml")), ids=lambda path: path.stem)
def test_kubernetes_takes_what_a_recipe_renders(path: Path) -> None:
    for each in _recipe(path.stem).objects:
        if each["kind"] not in CUSTOM:
            kubernetes_validate.validate(each, "1.31.0", strict=True)


@pytest.mark.parametrize("platform", PLATFORMS)
def test_the_values_of_a_platform_turn_on_everything_and_fit_its_nodes(platform: str) -> None:
    rendered = _recipe(platform)
    flags = " ".join(rendered.container["args"])
    mounted = {mount["mountPath"] for mount in rendered.container["volumeMounts"]}
    assert len(rendered.of_kind("ServiceMonitor")) == 1
    assert len(rendered.of_kind("PrometheusRule")) == len(tuple(CHART.glob("files/rules/*.yml")))
    assert len(rendered.of_kind("ConfigMap")) == len(tuple(CHART.glob("files/dashboards/*.json")))
    assert rendered.pod["hostPID"] is True, "processes"
    assert "--kubernetes.pod-resources-socket=" in flags, "pods that have a GPU"
    assert "--kubernetes.container-logs=" in flags, "pods that share a GPU"
    assert {"/host/pod-resources", "/host/container-logs", "/dev/kmsg"} <= mounted
    assert rendered.container["securityContext"]["privileged"] is True, "the kernel log"
    assert rendered.pod["securityContext"]["runAsUser"] == 0, "the kubelet's socket"
    assert "What is missing" not in rendered.notes
    assert "WARNING" not in rendered.notes
    known = {"gpu-operator": "nvidia", "openshift": "nvidia", "k3s": "nvidia", "microk8s": "nvidia", "talos": "nvidia"}
    assert rendered.pod.get("runtimeClassName") == known.get(platform)
    assert {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"} in rendered.pod["tolerations"]


def test_every_platform_selects_its_gpu_nodes() -> None:
    labels = {
        platform: {
            each["key"]
            for term in _recipe(platform).pod["affinity"]["nodeAffinity"][
                "requiredDuringSchedulingIgnoredDuringExecution"
            ]["nodeSelectorTerms"]
            for each in term["matchExpressions"]
        }
        for platform in PLATFORMS
    }
    assert labels["gke"] == {"cloud.google.com/gke-accelerator"}
    assert "kubernetes.azure.com/accelerator" in labels["aks"]
    assert "karpenter.k8s.aws/instance-gpu-manufacturer" in labels["eks"]
    assert {platform for platform in PLATFORMS if "nvidia.com/gpu.present" not in labels[platform]} == {"gke"}


@pytest.mark.parametrize("platform", PLATFORMS)
def test_without_the_kernel_log_only_gke_takes_a_privileged_container(platform: str) -> None:
    values = _values(platform, "device-list-mount") if platform != "gke" else _values(platform)
    rendered = render({**values, "features": {**values["features"], "kernelLog": {"enabled": False}}})
    security = rendered.container["securityContext"]
    assert security.get("privileged", False) == (platform == "gke")
    # Kubernetes refuses a privileged container with allowPrivilegeEscalation false.
    assert ("allowPrivilegeEscalation" in security) != security.get("privileged", False)
    mounted = [mount["mountPath"] for mount in rendered.container["volumeMounts"]]
    assert ("/var/run/nvidia-container-devices/all" in mounted) == (platform != "gke")


def test_nothing_that_no_upgrade_may_change_has_the_version() -> None:
    selector = _recipe("gpu-operator").only("DaemonSet")["spec"]["selector"]
    assert set(selector["matchLabels"]) == {f"app.kubernetes.io/{each}" for each in ("name", "instance", "component")}


def test_openshift_lets_the_exporter_use_the_constraints_that_it_needs() -> None:
    (rule,) = _recipe("openshift").only("Role")["rules"]
    assert (rule["resourceNames"], rule["verbs"]) == (["privileged"], ["use"])


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


@pytest.mark.parametrize("platform", [name for name in PLATFORMS if name != "openshift"])
def test_what_the_stack_chooses_by_has_its_label(platform: str) -> None:
    rendered = _recipe(platform)
    chosen = [*rendered.of_kind("ServiceMonitor"), *rendered.of_kind("PrometheusRule")]
    assert len(chosen) > 1
    assert {each["metadata"]["labels"]["release"] for each in chosen} == {"kube-prometheus-stack"}
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


def test_every_alert_is_there_and_each_object_fits_into_an_annotation(repository: Path) -> None:
    files = sorted((repository / OPERATOR).glob("*.yaml"))
    objects = (each for path in files for each in yaml.safe_load_all(path.read_bytes()))
    found = [each for each in objects if each["kind"] != "Kustomization"]
    rules = [rule for each in found for group in each["spec"].get("groups", ()) for rule in group["rules"]]
    wanted = [rule.name for rule in alerts(read_rules(rule_files()))]
    assert sorted(rule["alert"] for rule in rules if "alert" in rule) == sorted(wanted)
    # `kubectl apply` keeps an object's last state in an annotation, and annotations may have so much.
    assert max(len(yaml.safe_dump(each)) for each in found) < 256 << 10
    assert "Helm" not in str(found)


def test_the_preflight_asks_what_the_program_knows_and_kubernetes_takes_it(repository: Path) -> None:
    job = yaml.safe_load((repository / "deploy/kubernetes/preflight.yaml").read_bytes())
    (container,) = job["spec"]["template"]["spec"]["initContainers"]
    command = [sys.executable, "-m", "gpu_triage", *container["args"], "--simulate", "no-such-scenario"]
    result = subprocess.run(command, check=False, capture_output=True, text=True)
    assert "no scenario" in result.stderr, "the flags before it are known"
    for version in ("1.25.0", "1.37.0"):
        kubernetes_validate.validate(job, version, strict=True)


def _matches(term: dict[str, Any], labels: dict[str, str]) -> bool:
    """As Kubernetes: NotIn holds for a node without the label."""
    return all(
        (labels.get(each["key"]) in each["values"]) == (each["operator"] == "In") for each in term["matchExpressions"]
    )


@pytest.mark.parametrize("found", ["nvidia.com/gpu.present", "feature.node.kubernetes.io/pci-10de.present"])
def test_the_pod_leaves_a_node_while_the_operator_unloads_its_driver(found: str) -> None:
    """Of gpu-operator 26.7 and of older ones, whose driver manager pauses its own dcgm-exporter likewise."""
    affinity = _recipe("gpu-operator").pod["affinity"]["nodeAffinity"]
    terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
    for labels, runs in (
        ({}, True),
        ({"client": "true", "dcgm-exporter": "true"}, True),
        ({"dcgm-exporter": "false"}, True),
        ({"client": "paused-for-driver-upgrade", "dcgm-exporter": "true"}, False),
        ({"dcgm-exporter": "paused-for-driver-upgrade"}, False),
        ({"client": "paused-for-mig-change"}, False),
    ):
        node = {found: "true"} | {f"nvidia.com/gpu.deploy.{name}": value for name, value in labels.items()}
        assert any(_matches(term, node) for term in terms) is runs, labels


def test_googles_prometheus_selects_the_charts_pods() -> None:
    monitoring = yaml.safe_load((RECIPES.parent / "managed-prometheus.yaml").read_text(encoding="utf-8"))
    pod = _recipe("gke").only("DaemonSet")["spec"]["template"]["metadata"]["labels"]
    assert monitoring["spec"]["selector"]["matchLabels"].items() <= pod.items()
    assert "gpu-triage" in monitoring["metadata"]["name"]
