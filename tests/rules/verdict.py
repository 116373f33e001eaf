"""Whether what the rules said of a scenario is what the scenario expects, in sentences."""

import re
from collections.abc import Iterable, Iterator, Mapping

from tests.promql.promtool import Labels
from tests.rules.examine import Examination

from gpu_triage_simulator.scenario import Expectation

WATCHDOG = "GpuTriageWatchdog"
_PAIR = re.compile(r'(\w+)="([^"]*)"')
_UNTOLD = frozenset({"alertname", "alertstate", "action", "instance", "job", "drill", "uuid"})
"""Labels that tell nothing within one scenario."""


def wanted(text: str) -> Labels:
    """What ``GpuLost`` or ``GpuLost{gpu="6"}`` means: any alert that has these labels."""
    name, _, labels = text.partition("{")
    return {"alertname": name, **dict(_PAIR.findall(labels))}


def disagreements(examination: Examination, expectations: Iterable[Expectation]) -> list[str]:
    """Everything in which the rules and the scenario differ, a line each; empty if they agree."""
    expectations = tuple(expectations)
    episodes = _episodes(examination)
    entries = [wanted(text) for each in expectations for text in each.alerts]
    return [
        *(line for expectation in expectations for line in _at(expectation, examination, episodes)),
        *(
            f"{who} fires {times}; no expectation names it"
            for who, times in episodes.items()
            if not any(entry.items() <= wanted(who).items() for entry in entries)
        ),
        *_without_watchdog(examination),
        *_undecided(examination),
    ]


def _at(expectation: Expectation, examination: Examination, episodes: Mapping[str, str]) -> Iterator[str]:
    at = clock(expectation.at)
    found = [alert for alert in examination.firing[expectation.at] if alert["alertname"] != WATCHDOG]
    entries = {text: wanted(text) for text in expectation.alerts}
    for text, entry in entries.items():
        if not any(entry.items() <= alert.items() for alert in found):
            alike = (who for who in episodes if wanted(who)["alertname"] == entry["alertname"])
            when = "; ".join(f"{who} fires {episodes[who]}" for who in alike)
            yield f"{at}: {text} should fire; {when or 'it never does'}"
    for alert in found:
        if not any(entry.items() <= alert.items() for entry in entries.values()):
            yield f"{at}: {named(alert)} fires {episodes[named(alert)]}, which is not expected then"
    classes = examination.bottleneck[expectation.at]
    for gpu, expected in expectation.bottleneck.items():
        if classes.get(gpu) != expected:
            yield f"{at}: GPU {gpu} should be {expected}; it is {classes.get(gpu, 'unknown')}"


def _without_watchdog(examination: Examination) -> Iterator[str]:
    for at, alerts in examination.firing.items():
        if not any(alert["alertname"] == WATCHDOG for alert in alerts):
            yield f"{clock(at)}: {WATCHDOG} does not fire; it always should"
            return


def _undecided(examination: Examination) -> Iterator[str]:
    for at, gpus in examination.undecided.items():
        yield f"{clock(at)}: GPU {', '.join(sorted(gpus))} has no bottleneck class, or more than one"


def _episodes(examination: Examination) -> dict[str, str]:
    """When each alert fired first and last, such as ``from 10m to 12m``, by its name and labels."""
    times: dict[str, list[float]] = {}
    for at, alerts in sorted(examination.firing.items()):
        for alert in alerts:
            if alert["alertname"] != WATCHDOG:
                times.setdefault(named(alert), []).append(at)
    return {who: f"from {clock(at[0])} to {clock(at[-1])}" for who, at in sorted(times.items())}


def named(alert: Labels) -> str:
    """The alert as a scenario would name it, with all labels that tell something."""
    labels = ", ".join(f'{name}="{value}"' for name, value in sorted(alert.items()) if name not in _UNTOLD)
    return alert["alertname"] + (f"{{{labels}}}" if labels else "")


def clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}m{rest}s" if rest else f"{minutes}m"
