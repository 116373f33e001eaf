"""The schema refuses every value that the chart does not know, by its name."""

import json
from collections.abc import Iterator
from typing import Any

import helm_python
import jsonschema
import pytest
from tests.chart.rendering import CHART, render

from gpu_triage.alerting.shipped import shipped_sources

SCHEMA = json.loads((CHART / "values.schema.json").read_text(encoding="utf-8"))

WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "unknown name": ({"serviceMonitr": {"enabled": True}}, "serviceMonitr"),
    "unknown name below": ({"features": {"hostPid": {"enabled": True}}}, "hostPid"),
    "unknown name far below": ({"scrape": {"tlsConfig": {"insecure": True}}}, "insecure"),
    "word for a truth": ({"hostNetwork": "yes"}, "hostNetwork"),
    "too many GPUs": ({"expected": {"gpuCount": 65}}, "gpuCount"),
    "a width that no link has": ({"expected": {"pcieWidth": 6}}, "pcieWidth"),
    "a generation as text": ({"expected": {"pcieGeneration": "4"}}, "pcieGeneration"),
    "a tag for a digest": ({"image": {"digest": "v1"}}, "digest"),
    "a duration without unit": ({"scrape": {"interval": "15"}}, "interval"),
    "a longer interval than alerts can take": ({"scrape": {"interval": "2m"}}, "interval"),
    "an unknown scenario": ({"simulate": "h100-9"}, "simulate"),
    "a relative path": ({"textfile": {"hostPath": "jobs"}}, "hostPath"),
    "a relative folder of state": ({"state": {"hostPath": "state"}}, "hostPath"),
    "a path kept by the program": ({"web": {"telemetryPath": "metrics"}}, "telemetryPath"),
    "a host name with a port": ({"web": {"allowedHosts": ["gpu-1:9836"]}}, "allowedHosts"),
    "a port out of range": ({"web": {"port": 0}}, "port"),
    "a log level that is none": ({"log": {"level": "trace"}}, "level"),
    "a flag without dashes": ({"extraArgs": ["sample.fast=1s"]}, "extraArgs"),
    "a label that is no text": ({"podLabels": {"a": 1}}, "podLabels"),
    "an alert that is none": ({"rules": {"overrides": {"alerts": {"GpuLots": {}}}}}, "GpuLots"),
    "a finding that is none": ({"judge": {"thermal.hv": {"wait": "5m"}}}, "thermal.hv"),
    "a setting that the finding lacks": ({"judge": {"gpu.lost": {"share": 0.2}}}, "share"),
    "a wait of a finding without unit": ({"judge": {"thermal.hw": {"wait": 5}}}, "wait"),
    "a share out of range": ({"judge": {"thermal.hw": {"share": 20}}}, "share"),
    "a count that is no whole number": ({"judge": {"pcie.aer": {"count": 1.5}}}, "count"),
    "a toleration's typing error": ({"tolerations": [{"key": "a", "effect": "NoSchedul"}]}, "effect"),
}
USELESS: dict[str, tuple[dict[str, Any], str]] = {
    "both monitors": ({"serviceMonitor": {"enabled": True}, "podMonitor": {"enabled": True}}, "scraped twice"),
    "a monitor of no Service": (
        {"serviceMonitor": {"enabled": True}, "service": {"enabled": False}},
        "service.enabled",
    ),
    "a scrape longer than its interval": ({"scrape": {"interval": "5s"}}, "longer than scrape.interval"),
    "TLS from nowhere": ({"web": {"tls": True}}, "web.configSecret"),
    "pods of no process": ({"features": {"containerNames": {"enabled": True}}}, "features.hostPID"),
    "memory of no process": ({"features": {"processMemoryLocality": {"enabled": True}}}, "features.hostPID"),
    "rights for a simulation": (
        {"simulate": "h100-8", "features": {"kernelLog": {"enabled": True}}},
        "features.kernelLog",
    ),
    "a label that tells targets apart": (
        {"prometheusRule": {"enabled": True}, "rules": {"overrides": {"cluster_label": "a", "labels": {"a": "x"}}}},
        "the label a tells targets apart",
    ),
    "a wait longer than a week": (
        {"prometheusRule": {"enabled": True}, "rules": {"overrides": {"alerts": {"GpuExporterDown": {"for": "8d"}}}}},
        "the longest is 7d",
    ),
    "a job that is no pattern": (
        {"prometheusRule": {"enabled": True}, "rules": {"overrides": {"job": "("}}},
        "missing closing",
    ),
}


@pytest.mark.parametrize(("values", "named"), [*WRONG.values(), *USELESS.values()], ids=[*WRONG, *USELESS])
def test_a_bad_value_is_refused_by_name(values: dict[str, Any], named: str) -> None:
    with pytest.raises(helm_python.HelmError, match=named):
        render(values)


def test_the_schema_is_a_schema() -> None:
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


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
