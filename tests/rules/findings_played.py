"""Scenarios without Prometheus: what their expectations say of the alerts that relay findings, and what the judge does.

``python -m tests.rules.findings_played [NAME …]`` plays all scenarios, or these, in a third of the time that the rules
take, and lists the lives of the findings wherever the two differ. Alerts of PromQL are left to test_scenarios.py.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from tests.recordings import recorded
from tests.rules.examine import seconds_of
from tests.rules.playing import SCENARIOS
from tests.rules.verdict import clock, wanted

from gpu_triage.alerting.relays import NOT_OF_SERVERS
from gpu_triage.diagnosis.findings.finding import State
from gpu_triage.diagnosis.findings.table import BY_CODE
from gpu_triage.simulator import Scenario
from gpu_triage.subjects.judgement import GPU_FINDING, GPU_HOST_FINDING

RELAYED: Final = frozenset(check.alert for check in BY_CODE.values() if check.alert and check.relayed)


class Subject(NamedTuple):
    """A finding of a scenario: its alert, its code, and the index of its GPU; "" for the host."""

    alert: str
    code: str
    gpu: str

    def is_meant_by(self, text: str) -> bool:
        """Whether an expectation such as ``GpuLost{gpu="6"}`` names it."""
        own = {
            "alertname": self.alert,
            "code": self.code,
            "gpu": self.gpu,
            "severity": BY_CODE[self.code].severity.value,
        }
        return all(own.get(name, value) == value for name, value in wanted(text).labels.items())


def confirmed(scenario: Scenario) -> Mapping[Subject, Sequence[float]]:
    """Seconds of the scrapes at which each finding that is relayed was confirmed, failed scrapes included."""
    history = recorded(scenario, seconds=seconds_of(scenario))
    found: dict[Subject, list[float]] = {}
    serving = scenario.target.labels.get("workload") == "serving"
    for (name, labels), values in history.series.items():
        if name not in {GPU_FINDING.name, GPU_HOST_FINDING.name}:
            continue
        facts = dict(labels)
        alert, last = BY_CODE[facts["code"]].alert, math.nan
        if alert not in RELAYED or (serving and facts["code"] in NOT_OF_SERVERS):
            continue
        for step, value in enumerate(values):
            last = last if math.isnan(value) else value
            if last == State.CONFIRMED:
                found.setdefault(Subject(alert, facts["code"], facts.get("gpu", "")), []).append(
                    step * history.step_seconds
                )
    return found


def differences(scenario: Scenario) -> Iterator[str]:
    """Where expectations and findings differ, a line each."""
    lives = confirmed(scenario)
    named = [alert for each in scenario.expectations for alert in each.alerts]
    for expectation in scenario.expectations:
        at = float(expectation.at)
        now = [subject for subject, seconds in lives.items() if at in seconds]
        for text in expectation.alerts:
            if wanted(text).labels["alertname"] in RELAYED and not any(each.is_meant_by(text) for each in now):
                yield f"{clock(at)}: {text} should fire"
        for subject in now:
            if not any(map(subject.is_meant_by, expectation.alerts)):
                yield f"{clock(at)}: {subject} is not expected then"
    for subject, seconds in lives.items():
        if not any(map(subject.is_meant_by, named)):
            yield f"{subject} is confirmed from {clock(seconds[0])} on; no expectation names it"


def main(names: Sequence[str]) -> int:
    """Play scenarios; returns the exit code."""
    differ = 0
    for name in names or list(SCENARIOS):
        found = list(differences(SCENARIOS[name]))
        differ += bool(found)
        print("\n    ".join([f"{name}: {'ok' if not found else ''}", *found]), flush=True)  # noqa: T201 - a command
        for subject, seconds in sorted(confirmed(SCENARIOS[name]).items()) if found else ():
            print(f"        {subject}: {clock(seconds[0])} to {clock(seconds[-1])}")  # noqa: T201 - a command
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
