"""What a firing alert tells the person it wakes, as it would arrive: read the diff of ``notifications.txt``.

Written anew by ``make regenerate``.
"""

import difflib
import re
from collections.abc import Mapping

import pytest
from tests.conftest import RequiresTool
from tests.gathered import for_each
from tests.promql.promtool import Alert
from tests.rules.notifications import (
    ADDRESS,
    NOTIFICATIONS,
    SERIAL,
    Exhibit,
    every_exhibit,
    notifications,
    read_notifications,
    text_of,
)
from tests.rules.rulefile import BMC, alerts, read_rules, rule_files

from gpu_triage.alerting.shipped import shipped_sources

EXHIBITS = every_exhibit()
FLAWS = {
    "two spaces": r"  ",
    "a space at an end": r"^\s|\s$",
    "a space before punctuation": r" [.,;:](\s|$)",
    "punctuation twice": r"[.,;:][.,;:]",
    "no space before a parenthesis": r"\w\(",
    "a value that nothing has": r"<no value>|\bNaN\b|\bInf\b",
    "a template of the wrong type": r"%!",
    "a template that was not filled in": r"\{\{|\}\}|\$\{|\$labels|\$value",
    "a number as computers write it": r"\d[eE][+-]\d",
    "a value without words": r"\([a-z ]*[=:] ?-?\d|\bgpu_\w+ (is )?-?\d",
    "a plural of one": r"(?<![\w.-])1 (GPUs|NVIDIA GPUs|NVLinks|PCIe errors|process(?:es)? of|errors|times)\b",
    "one word twice": r"\b(\w+) \1\b",
    "a share with three digits": r"\d\.\d\d+%|\d\d\.\d+%",
}
"""Patterns of what must be in no text, by what it is."""

TIMELESS = {
    *("GpuTriageWatchdog", "GpuExporterAbsent", "GpuInFleetIncident", "GpuInFleetIncident.down"),
    "GpuDriverVersionDrift",
}
"""Exhibits of what begins with the first sample, reaches nobody, or is not known to have begun; and one for vmalert, of
which older versions have no times in texts."""

SENTENCE_END = re.compile(r"\. (?=[A-Z])")
"""Neither the steps of a list, which begin with "(1)", nor what stands in parentheses."""
LINK_AT_END = re.compile(r" All hosts: http://\S+$")

Sent = Mapping[str, tuple[Alert, ...]]

of_every_exhibit = for_each("exhibit", EXHIBITS, ids=lambda exhibit: exhibit.name)


@pytest.fixture(scope="module")
def sent(requires_tool: RequiresTool, regenerate: bool, tmp_path_factory: pytest.TempPathFactory) -> Sent:  # noqa: FBT001
    """What is sent for each exhibit; written to the file, if that is asked for."""
    found = notifications(requires_tool("promtool"), tmp_path_factory.mktemp("notifications"))
    if regenerate:
        sections = (f"## {name}\n{''.join(map(text_of, each))}" for name, each in sorted(found.items()))
        NOTIFICATIONS.write_text("\n".join(sections), encoding="utf-8")
    return found


def only(exhibit: Exhibit, sent: Sent) -> Alert:
    found = sent[exhibit.name]
    assert len(found) == 1, f"{exhibit.alert} fires {len(found)} times on the host of this exhibit, instead of once"
    return found[0]


@of_every_exhibit
def test_a_notification_reads_as_reviewed(exhibit: Exhibit, sent: Sent) -> None:
    text = text_of(only(exhibit, sent))
    reviewed = "".join(f"{name}: {text}\n" for name, text in read_notifications().get(exhibit.name, {}).items())
    difference = difflib.unified_diff(reviewed.splitlines(), text.splitlines(), exhibit.name, "now", lineterm="")
    assert text == reviewed, "\n".join(["if it is meant, run `make regenerate`", *difference])


@of_every_exhibit
def test_a_text_is_well_formed(exhibit: Exhibit, sent: Sent) -> None:
    """And a description has four sentences at most: the fact, what it means, and two about what to do."""
    notification = only(exhibit, sent)
    found = [
        f"{name}: {flaw}: {match[0]!r}"
        for name, text in notification.annotations.items()
        for flaw, pattern in FLAWS.items()
        for match in re.finditer(pattern, text)
    ]
    assert found == []
    assert not notification.annotations["summary"].endswith(".")
    description = LINK_AT_END.sub("", notification.annotations["description"])
    assert description.endswith(".")
    assert len(SENTENCE_END.split(description)) <= 4


@of_every_exhibit
def test_a_text_says_which_gpu_who_is_hit_and_since_when(exhibit: Exhibit, sent: Sent) -> None:
    notification = only(exhibit, sent)
    texts = notification.annotations
    if "uuid" in notification.labels:
        assert f"(PCI {ADDRESS}, serial {SERIAL})" in texts["description"]
    assert [owner for owner in exhibit.owners if owner not in texts["description"]] == []
    timeless = exhibit.name in TIMELESS
    assert [name for name in ("summary", "description") if (", since " in texts[name]) is timeless] == []


def test_every_alert_has_a_notification_to_review_and_no_other_is_left() -> None:
    shown = [exhibit.name for exhibit in EXHIBITS]
    enabled = {alert.key: alert for source in shipped_sources() for alert in source.alerts if alert.enabled}
    # The documentation shows the one that is called like the alert.
    assert sorted(enabled.keys() - set(shown)) == [], "add an exhibit (tests/rules/notifications.py)"
    assert sorted(shown) == sorted(read_notifications()), "run `make regenerate`"
    shipped = {(rule.name, rule.labels["severity"]) for rule in alerts(read_rules((*rule_files(), BMC)))}
    assert {(alert.name, alert.severity) for alert in enabled.values()} == shipped
