"""Whether what the rules said of a scenario is what the scenario expects, in sentences."""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from tests.promql.promtool import Labels
from tests.rules.examine import Examination

from gpu_triage_simulator.scenario import Expectation

WATCHDOG = "GpuTriageWatchdog"
_PAIR = re.compile(r'(\w+)="([^"]*)"')
_UNTOLD = frozenset({"alertname", "alertstate", "action", "instance", "job", "drill", "uuid"})
"""Labels that tell nothing within one scenario."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """An alert as a scenario names it: any that has these labels."""

    text: str
    labels: Labels

    def matches(self, alert: Labels) -> bool:
        return self.labels.items() <= alert.items()


def wanted(text: str) -> Wanted:
    """What ``GpuLost`` or ``GpuLost{gpu="6"}`` means."""
    name, _, labels = text.partition("{")
    return Wanted(text, {"alertname": name, **dict(_PAIR.findall(labels))})


def disagreements(examination: Examination, expectations: Iterable[Expectation]) -> list[str]:
    """Everything in which the rules and the scenario differ, a line each; empty if they agree."""
    expectations = tuple(expectations)
    episodes = _episodes(examination)
    return [
        *(line for expectation in expectations for line in _at(expectation, examination, episodes)),
        *_unforeseen(expectations, episodes),
        *_without_watchdog(examination),
        *_undecided(examination),
    ]


def _at(expectation: Expectation, examination: Examination, episodes: Mapping[str, str]) -> Iterator[str]:
    at = clock(expectation.at)
    found = [alert for alert in examination.firing[expectation.at] if alert["alertname"] != WATCHDOG]
    entries = [wanted(text) for text in expectation.alerts]
    for entry in entries:
        if not any(entry.matches(alert) for alert in found):
            when = "; ".join(f"{who} fires {times}" for who, times in episodes.items() if _same_name(who, entry.text))
            yield f"{at}: {entry.text} should fire; {when or 'it never does'}"
    for alert in found:
        if not any(entry.matches(alert) for entry in entries):
            who = named(alert)
            yield f"{at}: {who} fires {episodes.get(who, '')}, which is not expected then"
    classes = examination.bottleneck[expectation.at]
    for gpu, expected in expectation.bottleneck.items():
        if classes.get(gpu) != expected:
            yield f"{at}: GPU {gpu} should be {expected}; it is {classes.get(gpu, 'unknown')}"


def _unforeseen(expectations: tuple[Expectation, ...], episodes: Mapping[str, str]) -> Iterator[str]:
    entries = [wanted(text) for expectation in expectations for text in expectation.alerts]
    for who, times in episodes.items():
        if not any(entry.matches(wanted(who).labels) for entry in entries):
            yield f"{who} fires {times}; no expectation names it"


def _without_watchdog(examination: Examination) -> Iterator[str]:
    for at, alerts in examination.firing.items():
        if not any(alert["alertname"] == WATCHDOG for alert in alerts):
            yield f"{clock(at)}: {WATCHDOG} does not fire; it always should"
            return


def _undecided(examination: Examination) -> Iterator[str]:
    for at, gpus in examination.undecided.items():
        yield f"{clock(at)}: GPU {', '.join(sorted(gpus))} has no bottleneck class, or more than one"


def _episodes(examination: Examination) -> dict[str, str]:
    """When each alert fired, such as ``from 10m to 12m``, by its name and labels."""
    times: dict[str, list[float]] = {}
    for at, alerts in sorted(examination.firing.items()):
        for alert in alerts:
            if alert["alertname"] != WATCHDOG:
                times.setdefault(named(alert), []).append(at)
    return {who: _spans(at, examination.step_seconds) for who, at in sorted(times.items())}


def _spans(times: list[float], step: float) -> str:
    spans: list[list[float]] = []
    for at in times:
        if spans and at - spans[-1][1] <= step:
            spans[-1][1] = at
        else:
            spans.append([at, at])
    return ", ".join(f"from {clock(first)} to {clock(last)}" for first, last in spans)


def named(alert: Labels) -> str:
    """The alert as a scenario would name it, with all labels that tell something."""
    labels = ", ".join(f'{name}="{value}"' for name, value in sorted(alert.items()) if name not in _UNTOLD)
    return alert["alertname"] + (f"{{{labels}}}" if labels else "")


def clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m{rest}s" if rest else f"{minutes}m"


def _same_name(who: str, text: str) -> bool:
    return who.partition("{")[0] == text.partition("{")[0]
