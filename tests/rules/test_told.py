"""What a firing alert tells the person it wakes, as it would arrive: read the diff of ``notifications.txt``.

Written anew by ``make regenerate``.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping

import pytest
from tests.conftest import RequiresTool
from tests.gathered import for_each
from tests.rules.alerts_page import TOLD, read_told
from tests.rules.exhibits import BOARD, Exhibit
from tests.rules.gallery import EXHIBITS, Notification, notifications, sources
from tests.rules.rulefile import alerts, read_rules, rule_files
from tests.rules.vocabulary import series_labels, words

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
}
"""Patterns of what must be in no text, by what it is."""

SENTENCE_END = re.compile(r"\. (?=[A-Z])")
"""Neither the steps of a list, which begin with "(1)", nor what stands in parentheses."""
NOTE = re.compile(r" \[recorded on the host: [\w.-]+\]$")
"""What the flight recorder adds at the end."""
SERIES = re.compile(r"(\w+)\{(.*)\}")
LABEL = re.compile(r'(\w+)="([^"]*)"')

Sent = Mapping[str, tuple[Notification, ...]]

every_exhibit = for_each("exhibit", EXHIBITS, ids=lambda exhibit: exhibit.name)


@pytest.fixture(scope="module")
def sent(requires_tool: RequiresTool, regenerate: bool, tmp_path_factory: pytest.TempPathFactory) -> Sent:  # noqa: FBT001
    """What is sent for each exhibit; written to the folder, and nothing else left there, if that is asked for."""
    found = notifications(requires_tool("promtool"), tmp_path_factory.mktemp("told"))
    if regenerate:
        sections = (f"## {name}\n{''.join(one.text for one in each)}" for name, each in sorted(found.items()))
        TOLD.write_text("\n".join(sections), encoding="utf-8")
    return found


def only(exhibit: Exhibit, sent: Sent) -> Notification:
    """The notification of an exhibit."""
    found = sent[exhibit.name]
    assert len(found) == 1, f"{exhibit.alert} fires {len(found)} times on the host of this exhibit, instead of once"
    return found[0]


@pytest.mark.slow
@every_exhibit
def test_a_notification_reads_as_reviewed(exhibit: Exhibit, sent: Sent) -> None:
    notification = only(exhibit, sent)
    reviewed = "".join(f"{name}: {text}\n" for name, text in read_told().get(exhibit.name, {}).items())
    difference = difflib.unified_diff(
        reviewed.splitlines(), notification.text.splitlines(), exhibit.name, "now", lineterm=""
    )
    assert notification.text == reviewed, "\n".join(["if it is meant, run `make regenerate`", *difference])


@every_exhibit
def test_a_text_is_well_formed(exhibit: Exhibit, sent: Sent) -> None:
    notification = only(exhibit, sent)
    found = [
        f"{name}: {flaw}: {match[0]!r}"
        for name, text in notification.annotations.items()
        for flaw, pattern in FLAWS.items()
        for match in re.finditer(pattern, text)
    ]
    assert found == []
    assert not notification.annotations["summary"].endswith(".")
    assert NOTE.sub("", notification.annotations["description"]).endswith(".")


@every_exhibit
def test_a_description_has_four_sentences_at_most(exhibit: Exhibit, sent: Sent) -> None:
    """The fact, what it means, and two about what to do."""
    notification = only(exhibit, sent)
    sentences = SENTENCE_END.split(notification.annotations["description"])
    assert len(sentences) <= 4, sentences


@every_exhibit
def test_a_text_says_which_gpu_and_who_is_hit(exhibit: Exhibit, sent: Sent) -> None:
    notification = only(exhibit, sent)
    description = notification.annotations["description"]
    if "uuid" in notification.labels:
        assert f"(PCI {BOARD.address}, serial {BOARD.serial})" in description
    if "pci_bus_id" in notification.labels:
        assert BOARD.address in description
    assert [owner for owner in exhibit.owners if owner not in description] == []


def test_every_alert_has_a_notification_to_review_and_no_other_is_left() -> None:
    shown = {exhibit.name for exhibit in EXHIBITS}
    # The documentation shows the file that is called like the alert.
    assert sorted(sources().keys() - shown) == [], "add an exhibit (tests/rules/exhibits.py)"
    assert sorted(shown ^ read_told().keys()) == [], "run `make regenerate`"
    assert len(shown) == len(EXHIBITS), "two exhibits have one name"


def test_the_alerts_to_review_are_those_of_the_rules() -> None:
    shipped = {(rule.name, rule.labels["severity"]) for rule in alerts(read_rules(rule_files()))}
    assert {(alert.name, alert.severity) for alert in sources().values()} == shipped


def test_exhibits_are_made_of_series_that_an_exporter_publishes() -> None:
    """A text that asks for a label of another name would look complete here, and arrive without it."""
    labels_of = series_labels(read_rules(rule_files()))
    unknown: set[tuple[str, ...]] = set()
    for exhibit in EXHIBITS:
        for series in exhibit.series:
            metric, pairs = SERIES.fullmatch(series).groups()  # type: ignore[union-attr]  # every series has labels
            held = dict(LABEL.findall(pairs))
            unknown |= {(metric, label) for label in held.keys() - labels_of(metric)}
            unknown |= {
                (metric, label, value)
                for label, value in held.items()
                if value not in (words(metric, label) or {value})
            }
    assert unknown == set()


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("GPU 3 of gpu-07:9836 is lost. Its job has failed: pod a. Drain it.", 3),
        ("Nobody knows. (1) See the host; (2) read the log; (3) open http://gpu-07:9836/-/healthy.", 1),
        ("It was too hot (80 °C). Drain it (now.) and reset it.", 2),
    ],
)
def test_sentences_are_counted_and_the_steps_of_a_list_are_none(text: str, sentences: int) -> None:
    assert len(SENTENCE_END.split(text)) == sentences
