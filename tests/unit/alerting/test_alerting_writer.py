"""Rules as text: readable, and exactly what was meant when it is read again."""

import pytest
import yaml
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.gathered import every

from gpu_triage.alerting.build import BuiltGroup, BuiltRule, Fields, built
from gpu_triage.alerting.files import folded, rule_files, to_yaml
from gpu_triage.alerting.settings import DEFAULTS
from gpu_triage.alerting.shipped import shipped_sources

pytestmark = pytest.mark.slow

TEXT = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Zl", "Zp", "Cn", "Co")), max_size=200)
PROSE = st.lists(
    st.sampled_from(
        ["GPU", "{{ $labels.gpu }}", "of", "{{ if eq $value 1.0 }}a b{{ else }}c{{ end }}", "  ", "#", ": ", "'"]
    ),
    min_size=1,
    max_size=60,
).map(" ".join)


def one_rule(fields: Fields, about: str = "") -> str:
    return to_yaml("About.", (BuiltGroup("g", "1m", "", (BuiltRule(about, fields),)),))


def read_again(fields: Fields) -> object:
    return yaml.safe_load(one_rule(fields))["groups"][0]["rules"][0]


def test_what_is_written_reads_as_what_was_built() -> None:
    for source in every(shipped_sources()):
        groups = built(source, DEFAULTS)
        read = yaml.safe_load(to_yaml(source.about, groups))["groups"]
        assert [group["rules"] for group in read] == [[rule.fields for rule in group.rules] for group in groups]


@settings(max_examples=30)
@given(TEXT | PROSE, TEXT)
@example("", "null")
def test_any_text_reads_as_itself(text: str, label: str) -> None:
    fields: Fields = {"alert": "A", "expr": "up", "labels": {"a": label}, "annotations": {"description": text}}
    assert read_again(fields) == fields


@pytest.mark.parametrize("expr", ["up", "up == 0\n", "a\nor\nb\n", "a\nor\n  b", "'a'", "{a='b'} > 1", "vector(1) # x"])
def test_any_expression_reads_as_itself(expr: str) -> None:
    assert read_again({"record": "a:b:c", "expr": expr}) == {"record": "a:b:c", "expr": expr}


@given(PROSE)
def test_folding_gives_the_same_text_back(text: str) -> None:
    lines = folded(text, 40)
    if len(lines) > 1 and not text.startswith(" "):
        assert yaml.safe_load("a: >-\n" + "".join(f"  {line}\n" for line in lines)) == {"a": text}


def test_comments_stand_above_what_they_explain() -> None:
    text = one_rule({"record": "a:b:c", "expr": "up"}, "First.\n\nSecond.")
    assert text.startswith("# About.\n#\n# Written by `gpu-triage rules`")
    assert "  # First.\n  #\n  # Second.\n  - record: a:b:c\n    expr: up\n" in text


def test_keys_come_in_one_order_and_no_line_ends_in_a_space() -> None:
    order = "alert expr for keep_firing_for labels annotations"
    for text in every(rule_files().values()):
        assert [line for line in text.splitlines() if line != line.rstrip()] == []
        for group in yaml.safe_load(text)["groups"]:
            for rule in group["rules"]:
                assert list(rule) == [key for key in [*order.split(), "record"] if key in rule] or "record" in rule
                if "alert" in rule:
                    assert list(rule["labels"])[:2] == ["severity", "action"]
                    assert list(rule["annotations"])[:4] == ["summary", "description", "runbook_url", "dashboard_uid"]
