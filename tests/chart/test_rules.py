"""`rules.overrides` of the chart does what `gpu-triage rules --config` does with the same settings."""

from pathlib import Path
from typing import Any

import helm_python
import jsonschema
import pytest
import yaml
from deploy.generate.chart_rules import definitions, overrides_schema
from tests.chart.rendering import HERE, render

from gpu_triage.alerting.files import rule_files
from gpu_triage.alerting.settings import default_settings, read_settings
from gpu_triage.alerting.shipped import shipped_sources
from gpu_triage.errors import ConfigError

SOURCES = tuple(source for source in shipped_sources() if not source.optional)
ALERTS = {alert.key: alert for source in SOURCES for alert in source.alerts}
SCHEMA = {**overrides_schema(), "$defs": definitions()}

EVERYTHING = (HERE / "everything.yml").read_text(encoding="utf-8")


def own(name: str) -> dict[str, Any]:
    return {
        "alerts": {
            key: {"thresholds": {each: getattr(limits, name) for each, limits in alert.thresholds.items()}}
            for key, alert in ALERTS.items()
            if alert.thresholds
        }
    }


def parsed(text: str) -> Any:
    return yaml.load(text, yaml.CSafeLoader)


NO_LINKS = {
    "runbook_base_url": "",
    "runbook_command": "kubectl exec --namespace monitoring daemonset/gpu-gpu-triage-exporter -- gpu-triage explain",
}
"""What the chart's default comes to, as settings of the command."""


def by_command(overrides: dict[str, Any], folder: Path) -> dict[str, Any]:
    path = folder / "rules.yaml"
    path.write_text(yaml.safe_dump(overrides), encoding="utf-8")
    files = rule_files(read_settings(str(path), ALERTS))
    return {name.removesuffix(".yml"): parsed(text) for name, text in files.items() if "/" not in name}


def by_chart(overrides: dict[str, Any]) -> dict[str, Any]:
    values = {"prometheusRule": {"enabled": True}, "rules": {"overrides": overrides}}
    rules = render(values).of_kind("PrometheusRule")
    return {each["metadata"]["name"].removeprefix("gpu-gpu-triage-exporter-"): each["spec"] for each in rules}


@pytest.mark.parametrize(
    "overrides",
    [
        {},
        yaml.safe_load(EVERYTHING),
        yaml.safe_load(default_settings(SOURCES)),
        own("low"),
        own("high"),
        {"alerts": {key: {"enabled": False} for key in ALERTS}},
        {"alerts": {key: {"for": "1h30m", "severity": "info"} for key, each in ALERTS.items() if not each.codes}},
    ],
    ids=["defaults", "everything", "printed", "lowest", "highest", "none", "every alert"],
)
def test_the_chart_writes_what_the_command_writes(overrides: dict[str, Any], tmp_path: Path) -> None:
    charted, commanded = by_chart(overrides), by_command({**NO_LINKS, **overrides}, tmp_path)
    assert charted.keys() == commanded.keys()
    for name in charted:
        assert charted[name] == commanded[name]


@pytest.mark.parametrize("setting", [{"for": "15m"}, {"thresholds": {"share": 0.2}}])
def test_a_setting_of_the_exporter_is_refused_with_its_option(setting: dict[str, Any]) -> None:
    with pytest.raises(helm_python.HelmError, match=r"set judge\.thermal\.hw in the chart's values"):
        by_chart({"alerts": {"GpuHwThermalThrottling": setting}})


SETTINGS = yaml.safe_load((HERE / "settings.yml").read_text(encoding="utf-8"))
TOO_LONG = ({"labels": {"a": "x" * 257}}, {"labels": {f"a{number}": "x" for number in range(33)}})


@pytest.mark.parametrize("overrides", [*SETTINGS["fine"], *SETTINGS["wrong"], *TOO_LONG], ids=str)
def test_schema_and_command_take_and_refuse_the_same(overrides: dict[str, Any], tmp_path: Path) -> None:
    by_schema = jsonschema.Draft202012Validator(SCHEMA).is_valid(overrides)
    try:
        by_command(overrides, tmp_path)
        accepted = True
    except ConfigError:
        accepted = False
    assert by_schema == accepted == (overrides in SETTINGS["fine"])
