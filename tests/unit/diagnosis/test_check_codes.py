from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import yaml

from gpu_triage.diagnosis.findings.advice import ADVICE
from gpu_triage.diagnosis.findings.table import BY_CODE, CHECKS, EXPLAINED_BY

if TYPE_CHECKING:
    from pathlib import Path

NEED_MORE_THAN_A_WATCH = {
    "GpuEccCorrectedRising": "a day of counts",
    "GpuHostMemoryErrorsRising": "a day of counts",
    "GpuHungProcess": "what the GPU did before",
    "GpuProcessBlocked": "a minute in which a thread does not run",
    "GpuAllocatedIdle": "two hours",
    "GpuDriverVersionDrift": "other hosts",
    "GpuExporterAbsent": "a Prometheus",
    "GpuExporterDown": "a daemon",
    "GpuExporterXidDeaf": "a daemon; the report says what could not be read",
    "GpuExportersDown": "other hosts",
    "GpuCollectiveHang": "the traffic of all GPUs over minutes",
    "GpuInfinibandPortDown": "that the port was up before",
    "GpuExporterCollectorFailing": "a daemon; the report says what could not be read",
    "GpuExporterStale": "a daemon",
    "GpuHostClockWrong": "another host's clock",
    "GpuExporterWebConfigReloadFailed": "a daemon",
    "GpuExporterSimulated": "a daemon; the report says that a host is simulated",
    "GpuTriageWatchdog": "an Alertmanager",
}


def alerts(repository: Path) -> list[dict[str, Any]]:
    """All alerting rules."""
    files = sorted((repository / "rules").glob("alerts-*.yml"))
    groups = [group for file in files for group in yaml.safe_load(file.read_text())["groups"]]
    return [rule for group in groups for rule in group["rules"] if "alert" in rule]


def test_each_code_is_there_once() -> None:
    assert [code for code, count in Counter(check.code for check in CHECKS).items() if count > 1] == []


def test_each_finding_says_what_it_means_and_what_to_do_in_a_sentence() -> None:
    for check in CHECKS:
        for words in check.advice:
            assert words[0].isupper(), check.code
            assert words.endswith("."), check.code


def test_no_advice_is_left_over() -> None:
    assert set(ADVICE) <= set(BY_CODE)


def test_every_alert_that_a_watch_can_see_has_a_finding(repository: Path) -> None:
    known = {check.alert for check in CHECKS}
    assert {rule["alert"] for rule in alerts(repository)} == (known - {None}) | set(NEED_MORE_THAN_A_WATCH)


def test_a_finding_is_as_severe_as_its_alert_and_asks_for_the_same(repository: Path) -> None:
    ruled = {(rule["alert"], rule["labels"]["severity"], rule["labels"]["action"]) for rule in alerts(repository)}
    ours = {(check.alert, check.severity.value, check.action.value) for check in CHECKS if check.alert is not None}
    assert ours - ruled == set()


def test_every_severity_of_an_alert_has_a_finding(repository: Path) -> None:
    ours = {(check.alert, check.severity.value) for check in CHECKS}
    ruled = {(rule["alert"], rule["labels"]["severity"]) for rule in alerts(repository)}
    assert {each for each in ruled if each[0] not in NEED_MORE_THAN_A_WATCH} - ours == set()


def test_a_runbook_is_the_page_of_an_alert(repository: Path) -> None:
    assert {check.runbook for check in CHECKS} - {rule["alert"] for rule in alerts(repository)} - {""} == set()


def test_what_explains_a_finding_is_a_finding_itself() -> None:
    assert {code for causes in EXPLAINED_BY.values() for code in causes} | set(EXPLAINED_BY) <= set(BY_CODE)
