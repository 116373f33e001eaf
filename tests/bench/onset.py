"""How long it takes from the onset of a fault to its class, its finding, the confirmed finding and the alert.

The scenarios of the rules are played through the exporter and the rules. A fault begins with the last event of its GPU
or host before anything is seen of it; one that comes and goes, with its first time.
"""

import math
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from shutil import which
from typing import Final

import click
from tests.bench.page import TO_SCREEN, conditions, report, table
from tests.promql.promtool import ask
from tests.recordings import STEP_SECONDS, recorded, seconds_of
from tests.rules.cases import every_name, load_any
from tests.rules.examine import CLASSES, FIRING, class_of, numbers_of, prepare
from tests.rules.rulefile import alert_files, alerts, read_rules

from gpu_triage_simulator import Scenario

GROUP_WAIT_SECONDS: Final = {"critical": 45.0, "warning": 120.0}
"""Of the routes that come with the rules; what only informs is left out."""
NO_FAULT: Final = frozenset({"idle", "compute", "unknown"})
FINDINGS: Final = ("gpu_finding", "gpu_host_finding")

Key = tuple[str, str, str]
"""Class, code, or alert; its severity, "" for a class; the code of the alert's finding."""


@dataclass(frozen=True, slots=True)
class Course:
    """One fault, in seconds since its onset; None for what a PromQL alert or a class has not."""

    key: Key
    seen: float | None = None
    confirmed: float | None = None
    fires: float | None = None


def onset(scenario: Scenario, gpu: str, seen: float) -> float:
    """When what was seen at a time began."""
    first: dict[int, int] = {}
    for event in scenario.events:
        if not gpu or not event.gpus or int(gpu) in event.gpus:
            first[event.number] = min(event.at, first.get(event.number, event.at))
    episodes = [each.at for job in scenario.jobs for each in job.episodes]
    return max((at for at in (*first.values(), *episodes) if at <= seen), default=0.0)


def states(scenario: Scenario) -> dict[tuple[str, str], tuple[float, float]]:
    """When a finding was first seen, and confirmed (infinite if never), by its code and the number of its GPU."""
    found: dict[tuple[str, str], tuple[float, float]] = {}
    for (name, labels), column in recorded(scenario, seconds=seconds_of(scenario)).series.items():
        if name in FINDINGS:
            about = dict(labels)
            times = {at * STEP_SECONDS: state for at, state in enumerate(column) if state >= 1}
            confirmed = (at for at, state in times.items() if state >= 2)
            found[about["code"], about.get("gpu", "")] = (
                min(times, default=math.inf),
                min(confirmed, default=math.inf),
            )
    return found


def courses(name: str, promtool: Path) -> list[Course]:
    """The faults of a scenario: the first time of each class and each alert."""
    scenario = load_any(name)
    run = prepare(scenario, alert_files(), step_seconds=STEP_SECONDS, seconds=seconds_of(scenario))
    times = [step * STEP_SECONDS for step in range(int(seconds_of(scenario) / STEP_SECONDS) + 1)]
    with tempfile.TemporaryDirectory() as directory:
        asked = run.asking(tuple((question, at) for question in (FIRING, CLASSES) for at in times))
        answers = ask(promtool, asked, Path(directory)).samples
    numbers, known = numbers_of(run), states(scenario)
    found: dict[Key, Course] = {}
    for at in times:
        for sample in answers[CLASSES, at]:
            named = class_of(sample.value)
            if named not in NO_FAULT:
                found.setdefault(
                    (named, "", ""), Course((named, "", ""), at - onset(scenario, sample.labels["gpu"], at))
                )
        for sample in answers[FIRING, at]:
            labels = sample.labels
            gpu, code = labels.get("gpu", "") or numbers.get(labels.get("uuid", ""), ""), labels.get("code", "")
            key = labels["alertname"], labels["severity"], code
            seen, confirmed = known.get((code, gpu), (math.inf, math.inf))
            begins = onset(scenario, gpu, min(seen, at))
            since = (each - begins if each <= at else None for each in (seen, confirmed, at))
            if labels["severity"] in GROUP_WAIT_SECONDS:
                found.setdefault(key, Course(key, *since))
    return list(found.values())


def span(seconds: Sequence[float | None]) -> str:
    """The shortest and the longest, in minutes."""
    known = sorted(each / 60 for each in seconds if each is not None)
    return "–".join(dict.fromkeys(f"{each:.1f}" for each in (known[0], known[-1]))) if known else ""  # noqa: RUF001


def rows(found: Sequence[Course]) -> Iterator[dict[str, object]]:
    """Of a table; one for each class and each alert."""
    names = ("class or alert<", "severity<", "finding<", "scenarios", "seen", "confirmed", "fires", "sent")
    for key in sorted({each.key for each in found}, key=lambda key: (key[1], key)):
        own = [each for each in found if each.key == key]
        fires = [each.fires for each in own]
        sent = [at + GROUP_WAIT_SECONDS[key[1]] for at in fires if at is not None]
        spans = (span(each) for each in ([at.seen for at in own], [at.confirmed for at in own], fires, sent))
        yield dict(zip(names, (*key, len(own), *spans), strict=True))


@click.command()
@click.option("--only", default="", help="The beginning of the names of scenarios; all by default.")
@TO_SCREEN
def main(only: str, *, to_screen: bool) -> None:
    """From the onset of each fault to its class, finding and alert, in all scenarios."""
    promtool = which("promtool")
    if promtool is None:
        raise click.ClickException("promtool is needed; install prometheus")
    names = [name for name in every_name() if name.startswith(only)]
    names = [name for name in names if any(each.alerts for each in load_any(name).expectations)]
    found: list[Course] = []
    for name in names:
        found += courses(name, Path(promtool))
        click.echo(name, err=True)
    known = alerts(read_rules(alert_files()))
    told = {rule.name for rule in known if rule.labels["severity"] in GROUP_WAIT_SECONDS}
    rest = sorted(told - {each.key[0] for each in found})
    report("onset", [conditions(), "", *table(rows(found)), "", f"No scenario: {','.join(rest)}"], to_screen=to_screen)
