"""States, classes and steps: every panel uses the catalog's words and the status page's colors."""

import re
from functools import partial

from dashboards.diagnosis import VERDICTS
from dashboards.palette import GRAY
from dashboards.selectors import bottleneck_in
from dashboards.steps import COUNTED, RUNBOOKS_URL, STEPS, Step, alerts_of
from tests.dashboards.grafana import FILES, FOLDER, Target, all_targets, find, read, rows, substitute, words_of
from tests.gathered import for_each
from tests.promql.expressions import uses
from tests.rules.rulefile import alerts, read_rules, rule_files

from gpu_triage.judge.findings.check import Area
from gpu_triage.judge.findings.verdicts import CLASS_COLORS
from gpu_triage.read.exporter.judgment import BOTTLENECK_CLASSES, GPU_BOTTLENECK
from gpu_triage.read.metrics.metric import MetricSpec
from gpu_triage.read.registry import METRICS
from gpu_triage.serve.handbook.markdown import render_html
from gpu_triage.serve.handbook.pages import find as find_page

STATES = [spec for spec in METRICS if spec.states]
"""Metrics whose value is a state, with the names of the states."""
CHOICES = frozenset({"max", "min", "count_values"})
"""Aggregations whose result is still a state."""


def shown(spec: MetricSpec) -> list[Target]:
    """Queries whose answer is a state of the metric: not those that compare, count or choose by it."""
    return [
        target
        for target in all_targets()
        for use in uses(substitute(target.expr, 3600))
        if use.metric == spec.name and set(use.inside) <= CHOICES
    ]


@for_each("spec", STATES, ids=lambda spec: spec.name)
def test_every_panel_has_the_catalogs_word_for_every_state(spec: MetricSpec) -> None:
    targets = shown(spec)
    assert targets, "no panel shows it"
    for target in targets:
        words = {value: text for value, (text, _) in words_of(target).items()}
        named = {str(value): name for value, name in spec.states.items()}
        assert {value: words.get(value) for value in named} == named, target.name


@for_each("target", partial(shown, GPU_BOTTLENECK), ids=lambda target: target.name)
def test_every_panel_has_the_one_color_of_each_class(target: Target) -> None:
    colors = {text: color for text, color in words_of(target).values() if text in CLASS_COLORS}
    assert colors == CLASS_COLORS


@for_each("file", FILES)
def test_colors_are_those_of_the_status_page(file: str) -> None:
    text = (FOLDER / file).read_text(encoding="utf-8")
    used = set(re.findall(r'"(?:color|fixedColor|iconColor)": "([^"]+)"', text))
    assert GRAY in used
    assert used - set(CLASS_COLORS.values()) <= {"text", "transparent"}


def test_classes_are_compared_by_their_values_and_consecutive_ones_at_once() -> None:
    brake, cap = map(GPU_BOTTLENECK.value_of, ("power_brake", "power_cap"))
    query = bottleneck_in(("clock_cap", "thermal", "power_cap", "power_brake"))
    assert re.findall(r"[<>=]= \d+", query) == [f">= {brake - 1}", f"<= {brake}", f">= {cap}", f"<= {cap + 1}"]
    assert re.findall(r"[<>=]= \d+", bottleneck_in(["sick"])) == [f"== {GPU_BOTTLENECK.value_of('sick')}"]


def test_every_class_and_every_alert_belongs_to_one_step() -> None:
    of_steps = [name for step in STEPS for name in step.classes]
    assert sorted(of_steps) == sorted(set(BOTTLENECK_CLASSES) - {"idle", "unattributed"})
    assert sorted(area.value for step in STEPS for area in step.areas) == sorted(area.value for area in Area)
    counted = {rule.name for rule in alerts(read_rules(rule_files())) if rule.labels["severity"] in COUNTED}
    assert set().union(*map(alerts_of, STEPS)) == counted


@for_each("step", STEPS, ids=lambda step: step.title)
def test_a_verdict_links_a_panel_of_its_step_and_the_playbook(step: Step) -> None:
    overrides = find("diagnosis.json", VERDICTS).panel["fieldConfig"]["overrides"]
    by_title = {
        one["displayName"]: one
        for one in ({each["id"]: each["value"] for each in override["properties"]} for override in overrides)
    }
    look, read_on = by_title[step.title]["links"]
    assert read_on["title"] == step.decide
    looked_at = re.search(r"viewPanel=(\d+)", look["url"])
    assert looked_at
    (row,) = (row for row in rows(read("diagnosis.json")) if row["title"] == step.row)
    assert [panel["title"] for panel in row["panels"] if panel["id"] == int(looked_at[1])] == [step.key_panel]
    page, _, anchor = read_on["url"].removeprefix(f"{RUNBOOKS_URL}/").partition("#")
    assert f'<h3 id="{anchor}">' in render_html(find_page(page).text)
