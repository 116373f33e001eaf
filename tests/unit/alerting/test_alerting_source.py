"""The source of the rules: read strictly, complete, and every token of it filled in."""

import re
from pathlib import Path

import pytest
from tests.gathered import every

from gpu_triage.alerting.build import filled_in
from gpu_triage.alerting.macros import expanded, macros, xid_lists, xid_texts
from gpu_triage.alerting.rule_source import SOURCE, RuleSource, read_macros, read_sources
from gpu_triage.alerting.settings import duration_seconds
from gpu_triage.alerting.shipped import shipped_sources
from gpu_triage.errors import DocumentError
from gpu_triage.read.xid.codes import NONFATAL_MEANING, XID_CODES, XidKind, codes_of

SOURCES = shipped_sources()
ALERTS = [alert for source in SOURCES for alert in source.alerts]

GOOD = """
about: What it is for.
groups:
  - name: a
    interval: 1m
    rules:
      - record: b:c:d
        expr: up
      - alert: GpuA
        thresholds:
          share: {value: 0.1, min: 0.01, max: 0.9, about: of the time}
        expr: up > ${share}
        severity: info
        action: none
        summary: S
        description: D
        dashboard: d
"""


def read(folder: Path, text: str) -> RuleSource:
    (folder / "a.yml").write_text(text, encoding="utf-8")
    (source,) = read_sources(folder)
    return source


def test_every_macro_is_used_and_hides_no_setting() -> None:
    files = (*SOURCE.rglob("*.yml"), *SOURCE.parent.glob("*.py"))
    text = "".join(path.read_text(encoding="utf-8") for path in files)
    unused = {name for name in every(read_macros()) if f"{{{name}}}" not in text and f'"{name}"' not in text}
    assert unused == set()
    settings = {name for alert in ALERTS for name in alert.thresholds} | {"target", "subject", "fleet", "job"}
    assert settings & macros().keys() == set()


def test_a_part_of_an_expression_is_indented_like_the_line_that_it_is_in() -> None:
    first, *others = expanded("max (\n  ${owned}\n)", macros()).splitlines()[1:-1]
    assert first.startswith("  group by")
    assert [line for line in others if not line.startswith("  ")] == []


def test_lists_of_xids_are_those_of_the_table() -> None:
    lists = {name: [int(code) for code in text.split("|")] for name, text in xid_lists().items()}
    assert sorted(lists["xids_ticket"]) == list(codes_of(XidKind.TICKET))
    assert sorted(lists["xids_listed"]) == sorted(XID_CODES)
    assert sorted([*lists["xids_page_nvlink"], *lists["xids_page_other"]]) == list(codes_of(XidKind.PAGE))
    assert expanded('x{xid=~"${xids_page}"}', macros()) == f'x{{xid=~"{xid_lists()["xids_page"]}"}}'


def test_the_words_for_an_xid_are_those_of_the_table() -> None:
    words, action = xid_texts()["xid_words_page"], xid_texts()["xid_action_page"]
    for code in codes_of(XidKind.PAGE):
        for text, wanted in ((words, XID_CODES[code].meaning), (action, XID_CODES[code].action)):
            branches = dict(re.findall(r'match " \(([0-9|]+)\) " \$codes \}\}(.*?)\{\{', text))
            assert [said for codes, said in branches.items() if str(code) in codes.split("|")] == [wanted]
    assert f'match " (nonfatal) " $codes }}}}{NONFATAL_MEANING}' in xid_texts()["xid_words_ticket"]


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (GOOD.replace("action:", "acton:"), r"rules\[1\]\.acton: unknown key; did you mean action\?"),
        (GOOD.replace("summary: S", "summary: |\n          a\n          b"), "summary: .*has several lines"),
        (GOOD.replace("record: b:c:d", "recorded: b:c:d"), r"rules\[0\]: is missing; known are record, alert"),
    ],
)
def test_a_wrong_source_is_refused_by_name(tmp_path: Path, wrong: str, message: str) -> None:
    assert next(read(tmp_path, GOOD).alerts).thresholds["share"].value == 0.1
    with pytest.raises(DocumentError, match=message):
        read(tmp_path, wrong)


@pytest.mark.parametrize("text", ["up > ${shar}", "${Share}"])
def test_an_unknown_token_is_refused(text: str) -> None:
    assert filled_in("a", "up > ${share}", {"share": "1"}) == "up > 1"
    with pytest.raises(DocumentError, match=r"a: \$\{[Ss]har.*; known are share"):
        filled_in("a", text, {"share": "1"})


def test_alerts_have_keys_of_their_own_and_defaults_within_their_ranges() -> None:
    assert len({alert.key for alert in ALERTS}) == len(ALERTS)
    for each in every([each for alert in ALERTS for each in alert.thresholds.values()]):
        assert each.low <= each.value <= each.high


LENGTHS = {"1m": 60, "90s": 90, "1h30m": 5400, "7d": 604800, "0s": 0}
OTHERS = dict.fromkeys(["", "5", "m", "5x", "30m1h", "1.5h", "-1m", "5 m", "1h\n"])


@pytest.mark.parametrize(("text", "length"), [*LENGTHS.items(), *OTHERS.items()])
def test_the_length_of_a_duration_and_other_texts_are_none(text: str, length: int | None) -> None:
    assert duration_seconds(text) == length
