"""Every alert as a notification, as it would arrive: one host for each text, rendered by promtool."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.rules.exhibits import NOW, Exhibit, every_exhibit
from tests.rules.handwritten import with_time
from tests.rules.promtool import Alert, Run, ask
from tests.rules.rulefile import read_rules, rule_files

from gpu_triage.alerting.rule_source import Alert as Source
from gpu_triage.alerting.shipped import shipped_sources

EXHIBITS: Final = every_exhibit()
TEXTS: Final = ("summary", "description")
LINKS: Final = ("runbook_url", "dashboard_uid")

SHOWN_INSTANCE: Final = "gpu-07:9836"
"""What the host of each exhibit is called when shown, so that a new exhibit changes no other one's text."""

EVALUATION_SECONDS: Final = 120
"""Half the time of an evaluation a minute, and long enough for what waits for an hour."""


def sources() -> Mapping[str, Source]:
    """Every alert that is on by default, by its key."""
    return {alert.key: alert for source in shipped_sources() for alert in source.alerts if alert.enabled}


@dataclass(frozen=True, slots=True)
class Notification:
    """What Alertmanager is told of one alert."""

    labels: Mapping[str, str]
    annotations: Mapping[str, str]

    @property
    def text(self) -> str:
        """One line for each part, none of them wrapped."""
        labels = " ".join(
            f'{name}="{value}"' if " " in value else f"{name}={value}"
            for name, value in sorted(self.labels.items())
            if name != "job"
        )
        parts = (
            *((name, self.annotations[name]) for name in TEXTS),
            ("labels", labels),
            *((name, self.annotations[name]) for name in LINKS),
        )
        return "".join(f"{name}: {value}\n" for name, value in parts)


def notifications(promtool: Path, directory: Path) -> Mapping[str, tuple[Notification, ...]]:
    """What is sent for each exhibit, by its name: exactly one, where all is well."""
    together = tuple(exhibit for exhibit in EXHIBITS if not exhibit.alone)
    runs = (together, *((exhibit,) for exhibit in EXHIBITS if exhibit.alone))
    return {name: sent for run in runs for name, sent in _rendered(run, promtool, directory).items()}


def _rendered(exhibits: tuple[Exhibit, ...], promtool: Path, directory: Path) -> dict[str, tuple[Notification, ...]]:
    by_key = sources()
    groups = tuple(dict.fromkeys(rule.group for rule in read_rules(rule_files())))
    asked = {exhibit.name: (by_key[exhibit.alert].name, NOW * 60.0) for exhibit in exhibits}
    hosts = {exhibit.name: f"host-{number:03}" for number, exhibit in enumerate(exhibits)}
    series = {
        key.replace('instance="a"', _target(hosts[exhibit.name], exhibit)): values
        for exhibit in exhibits
        for key, values in with_time(exhibit.series).items()
    }
    questions = tuple(dict.fromkeys(asked.values()))
    run = Run(rule_files(), groups, 60, series, alerts=questions, evaluation_seconds=EVALUATION_SECONDS)
    answers = ask(promtool, run, directory).alerts
    return {
        exhibit.name: tuple(_of(hosts[exhibit.name], by_key[exhibit.alert], answers[asked[exhibit.name]]))
        for exhibit in exhibits
    }


def _target(instance: str, exhibit: Exhibit) -> str:
    cluster = f'cluster="{exhibit.cluster}",' if exhibit.cluster else ""
    return f'{cluster}instance="{instance}"'


def _of(instance: str, source: Source, firing: Iterable[Alert]) -> Iterator[Notification]:
    """Those of one host and of one rule, for two rules may share a name."""
    for alert in firing:
        if alert.labels["severity"] == source.severity and (source.fleet or alert.labels.get("instance") == instance):
            yield Notification(_shown(alert.labels, instance), _shown(alert.annotations, instance))


def _shown(texts: Mapping[str, str], instance: str) -> dict[str, str]:
    return {name: text.replace(instance, SHOWN_INSTANCE) for name, text in texts.items()}
