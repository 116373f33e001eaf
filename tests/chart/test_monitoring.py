"""What Prometheus and Grafana find: monitors, rules and dashboards, and the notes that say what they may miss."""

import json
import re
from functools import reduce
from pathlib import Path
from typing import Any

import promql_parser
import pytest
from tests.chart.rendering import CHART, MATRIX, render
from tests.dashboards.grafana import panels, substitute
from tests.gathered import every

from gpu_triage.alerting.settings import DEFAULTS

LARGEST_ANNOTATION = 260_000
"""Bytes of an object that ``kubectl apply`` keeps in an annotation. Kubernetes allows 262,144 for all annotations
together: a dashboard must not come near. docs/kubernetes.md has the number."""

COMMAND = "kubectl exec --namespace monitoring daemonset/gpu-gpu-triage-exporter -- gpu-triage explain"
"""What prints a runbook, followed by its name."""


@pytest.mark.parametrize("values", MATRIX.values(), ids=MATRIX.keys())
def test_the_operator_knows_every_name(values: dict[str, Any]) -> None:
    # Importing the models takes seconds of a CPU, which every worker that collects the tests would spend.
    from cloudcoil.models.prometheus_operator import v1  # noqa: PLC0415

    for each in every(render(values).objects):
        if each["kind"] in {"ServiceMonitor", "PodMonitor", "PrometheusRule"}:
            known = getattr(v1, each["kind"]).model_validate(each)
            assert known.model_dump(mode="json", by_alias=True, exclude_unset=True)["spec"] == each["spec"]


def test_a_monitor_selects_the_exporter_and_names_series_after_the_node() -> None:
    for kind, endpoints, values in (
        ("ServiceMonitor", "endpoints", {"serviceMonitor": {"enabled": True}}),
        ("PodMonitor", "podMetricsEndpoints", {"podMonitor": {"enabled": True}}),
    ):
        rendered = render(values)
        spec = rendered.only(kind)["spec"]
        assert spec["selector"]["matchLabels"] == rendered.only("DaemonSet")["spec"]["selector"]["matchLabels"]
        assert spec["namespaceSelector"] == {"matchNames": ["monitoring"]}
        assert spec["sampleLimit"] == 20000
        (endpoint,) = spec[endpoints]
        assert endpoint["port"] == rendered.container["ports"][0]["name"]
        assert endpoint["relabelings"][0] == {
            "sourceLabels": ["__meta_kubernetes_pod_node_name"],
            "targetLabel": "instance",
        }


def test_the_rules_know_the_exporter_by_the_job_it_gets() -> None:
    for kind in ("serviceMonitor", "podMonitor"):
        rendered = render({kind: {"enabled": True}, "nameOverride": "other"})
        label = rendered.only(kind[0].upper() + kind[1:])["spec"]["jobLabel"]
        job = rendered.only("Service" if kind == "serviceMonitor" else "DaemonSet")["metadata"]["labels"][label]
        assert job == rendered.only("DaemonSet")["spec"]["template"]["metadata"]["labels"][label]
        assert re.fullmatch(DEFAULTS.job, job)


def test_a_dashboard_becomes_a_config_map_that_the_sidecar_finds() -> None:
    files = {path.name: path.read_text(encoding="utf-8").strip() for path in CHART.glob("files/dashboards/*.json")}
    values = {"dashboards": {"enabled": True, "namespace": "grafana"}, "scrape": {"relabelings": []}}
    maps = render(values).of_kind("ConfigMap")
    assert {name: text.strip() for each in every(maps) for name, text in each["data"].items()} == files
    for each in maps:
        (name,) = each["data"]
        assert each["metadata"]["name"] == f"gpu-gpu-triage-exporter-dashboard-{name.removesuffix('.json')}"
        assert each["metadata"]["labels"]["grafana_dashboard"] == "1"
        assert each["metadata"]["namespace"] == "grafana"


def test_a_folder_becomes_the_annotation_that_the_sidecar_reads() -> None:
    plain = {"enabled": True, "annotations": {"a": "b"}}
    for dashboards, expected in (
        (plain, {"a": "b"}),
        ({**plain, "folder": "GPUs"}, {"a": "b", "grafana_folder": "GPUs"}),
        (
            {**plain, "folder": "GPUs", "folderAnnotation": "k8s-sidecar/folder"},
            {"a": "b", "k8s-sidecar/folder": "GPUs"},
        ),
    ):
        maps = render({"dashboards": dashboards}).of_kind("ConfigMap")
        assert [each["metadata"]["annotations"] for each in every(maps)] == [expected] * len(maps)


def test_every_object_can_be_applied_with_the_room_that_is_documented(repository: Path) -> None:
    values = {"dashboards": {"enabled": True}, "prometheusRule": {"enabled": True}}
    objects = render(values).objects
    dashboards = [each for each in objects if each["kind"] == "ConfigMap"]
    assert [len(each["data"]) for each in dashboards] == [1] * len(list(CHART.glob("files/dashboards/*.json")))
    texts = {each["metadata"]["name"]: json.dumps(each, separators=(",", ":"), ensure_ascii=False) for each in objects}
    # As `kubectl apply` writes it into its annotation: Go escapes "<", ">" and "&".
    sizes = {name: len(re.sub("[<>&]", r"\\u0000", text).encode()) for name, text in texts.items()}
    assert {name: size for name, size in sizes.items() if size > LARGEST_ANNOTATION} == {}
    page = " ".join((repository / "docs/kubernetes.md").read_text(encoding="utf-8").split())
    (documented,) = re.findall(r"no object of the chart has more than (\d+) kB", page)
    assert int(documented) * 1000 == LARGEST_ANNOTATION
    assert max(sizes.values()) > 0.8 * LARGEST_ANNOTATION, "then the page can name a smaller number"


def test_the_copies_of_the_dashboards_ask_the_same_in_other_quotes(repository: Path) -> None:
    for source in every(sorted((repository / "dashboards").glob("*.json"))):
        original, copy = (
            [
                str(promql_parser.parse(substitute(each["expr"], 3600)))
                for panel in panels(read)
                for each in panel["targets"]
            ]
            for read in (json.loads(path.read_bytes()) for path in (source, CHART / "files/dashboards" / source.name))
        )
        assert copy == original


def test_the_notes_warn_of_labels_that_prometheus_wants() -> None:
    enabled = {"serviceMonitor": {"enabled": True}, "prometheusRule": {"enabled": True}}
    assert "ruleSelectorNilUsesHelmValues" in render(enabled).notes
    assert "--set scrape.labels.release" in render(enabled).notes
    labels = {"labels": {"release": "stack"}}
    labeled = {"serviceMonitor": {"enabled": True}, "prometheusRule": {"enabled": True, **labels}, "scrape": labels}
    assert "ruleSelectorNilUsesHelmValues" not in render(labeled).notes
    assert render(labeled).notes.count('{"release":"stack"}') == 2
    assert "kubectl get prometheus" in render(labeled).notes
    assert "kubectl get prometheus" not in render().notes


TO_LINK = "--set rules.overrides.runbook_base_url=https://gpu.example.org/runbooks"
LINKS: dict[str, tuple[dict[str, Any], str]] = {
    "pod network": ({}, ""),
    "node network": ({"hostNetwork": True}, "http://{{ $labels.instance }}:9836/runbooks"),
    "node network and TLS": (
        {"hostNetwork": True, "web": {"port": 9443, "configSecret": "web", "tls": True}},
        "https://{{ $labels.instance }}:9443/runbooks",
    ),
    "address of the pod": ({"scrape": {"relabelings": []}}, "http://{{ $labels.instance }}/runbooks"),
    "a name of the user's own": (
        {"hostNetwork": True, "scrape": {"relabelings": [{"sourceLabels": ["a"], "targetLabel": "instance"}]}},
        "",
    ),
    "public address": (
        {"rules": {"overrides": {"runbook_base_url": "https://gpu.example.org/runbooks/"}}},
        "https://gpu.example.org/runbooks",
    ),
    "none on purpose": ({"hostNetwork": True, "rules": {"overrides": {"runbook_base_url": ""}}}, ""),
}
"""Values, and the address below which alerts and notes have the runbooks; "" for the command instead."""


@pytest.mark.parametrize(("values", "base"), LINKS.values(), ids=LINKS.keys())
def test_alerts_and_notes_have_links_that_work_or_the_command_to_run(values: dict[str, Any], base: str) -> None:
    rendered = render({"prometheusRule": {"enabled": True}, "dashboards": {"enabled": True}, **values})
    alerts = {
        rule["alert"]: rule["annotations"]["runbook_url"]
        for each in rendered.of_kind("PrometheusRule")
        for group in each["spec"]["groups"]
        for rule in group["rules"]
        if "alert" in rule
    }
    assert alerts["GpuLost"] == (f"{base}/GpuLost" if base else f"{COMMAND} GpuLost")
    down = alerts["GpuExporterDown"]
    assert down.count("| query }}") == (2 if "$labels" in base else 0)
    assert f"{COMMAND} GpuExporterDown" in down or down == f"{base}/GpuExporterDown"
    if base:
        assert f"Alerts and dashboards link the runbooks at {base}" in rendered.notes
        assert COMMAND not in rendered.notes
    else:
        assert f"a browser does not reach pods:\n  {COMMAND} GpuLost\n" in rendered.notes
    assert TO_LINK in rendered.notes
    assert (
        base or "kubectl port-forward --namespace monitoring daemonset/gpu-gpu-triage-exporter 9836\n" in rendered.notes
    )
    links = (base or "http://127.0.0.1:9836/runbooks").replace("{{ $labels.instance }}", "${exporter:raw}")
    (diagnosis,) = (each for each in rendered.of_kind("ConfigMap") if "diagnosis.json" in each["data"])
    assert f"{links}/playbook" in diagnosis["data"]["diagnosis.json"]


PARTS: dict[str, Any] = {
    "serviceMonitor": {"enabled": True},
    "prometheusRule": {"enabled": True},
    "dashboards": {"enabled": True},
    "features": {name: {"enabled": True} for name in ("hostPID", "podResources", "containerNames", "kernelLog")},
}
"""What a default installation lacks."""


def _missing(notes: str) -> dict[str, dict[str, Any]]:
    """The lines that turn something on, each with the values that it sets."""
    found: dict[str, dict[str, Any]] = {}
    for line in re.findall(r"^    ((?:--set \S+=true ?)+)$", notes, re.MULTILINE):
        values: dict[str, Any] = found.setdefault(line, {})
        for path in re.findall(r"--set (\S+)=true", line):
            *above, last = path.split(".")
            reduce(lambda at, name: at.setdefault(name, {}), above, values)[last] = True
    return found


def test_the_default_notes_name_what_is_missing_and_each_line_turns_its_part_on() -> None:
    missing = _missing(render().notes)
    assert len(missing) == 7
    for line, values in missing.items():
        assert line not in _missing(render(values).notes), f"{line} changes nothing"
    assert _missing(render(PARTS).notes) == {}
    assert "What is missing" not in render(PARTS).notes
    for name in PARTS["features"]:
        without = {**PARTS, "features": {**PARTS["features"], name: {"enabled": False}}}
        if name == "hostPID":
            without["features"]["containerNames"] = {"enabled": False}
        assert f"--set features.{name}.enabled=true" in render(without).notes


def test_the_notes_of_a_simulated_host_offer_nothing_that_it_refuses() -> None:
    notes = render({"simulate": "h100-8"}).notes
    assert "every metric is made up" in notes
    assert set(_missing(notes)) == {
        f"--set {part}.enabled=true" for part in ("serviceMonitor", "prometheusRule", "dashboards")
    }
