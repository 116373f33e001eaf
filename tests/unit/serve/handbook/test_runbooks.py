"""The playbook, its runbooks and the rules say the same: alerts, thresholds' homes, links, metrics, options."""

import re
from pathlib import Path

from tests.gathered import for_each
from tests.promql.vocabulary import CLASSES
from tests.rules.rulefile import BMC, REPOSITORY, alerts, read_rules, rule_files

from gpu_triage.judge.findings.table import CHECKS

DOCS = REPOSITORY / "docs"
HANDBOOK = REPOSITORY / "exporter" / "gpu_triage" / "serve" / "handbook"
PLAYBOOK = HANDBOOK / "playbook.md"
XIDS = HANDBOOK / "xids.md"
INDEX = HANDBOOK / "runbooks" / "README.md"
RUNBOOKS = tuple(sorted((HANDBOOK / "runbooks").glob("Gpu*.md")))
PAGES = (PLAYBOOK, XIDS, INDEX, *RUNBOOKS)
RULES = read_rules((*rule_files(), BMC))
ALERTS = {name: tuple(rule for rule in alerts(RULES) if rule.name == name) for name in {r.name for r in alerts(RULES)}}

OF_FINDINGS = frozenset(check.alert for check in CHECKS if check.alert is not None)
"""Alerts that relay findings; Prometheus itself judges the others."""
OFF = frozenset(check.alert for check in CHECKS if not check.relayed)
"""Alerts that are not in the rules by default."""

SECTIONS = ("Meaning", "Impact", "Diagnosis", "Mitigation", "False alarm")
"""The last is left out if there are only the reasons that the index has for all alerts."""
STEPS = (
    *("0. Can you trust what you see?", "1. Is it sick?", "2. Is it held back?", "3. Is the path to it broken?"),
    *("4. Is it starved?", "5. Is the software in the way?"),
)
"""The playbook's steps. The alerts of the rules' group about the exporter ask the first."""

FACTS = re.compile(r"^Severity: .+", re.MULTILINE)
LENGTH = re.compile(r"\b(\d+)[- ](seconds?|s|minutes?|min|hours?|h)\b")
SECONDS = {"s": 1, "m": 60, "h": 3600}
LINK = re.compile(r"\]\(([^)\s]+)\)")
FENCE = re.compile(r"^ *```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
OPTION = re.compile(r"--(?:no-)?((?:expect|sample|collector|web|path|log|process|kubernetes)\.[a-z._-]+[a-z])")


def _text(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def _prose(page: Path) -> str:
    return FENCE.sub("", _text(page))


def _slug(heading: str) -> str:
    """The anchor of a heading, as GitHub makes it."""
    plain = LINK.sub("", heading).replace("[", "").lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def _section(page: Path, title: str) -> str:
    """What stands under a heading, up to the next one of its level or above."""
    found = re.search(rf"^(#+) {re.escape(title)}\n(.*?)(?=^#{{1,2}} |\Z)", _prose(page), re.MULTILINE | re.DOTALL)
    assert found, f"{page.name} has no section {title!r}"
    return found[2].split(f"\n{found[1]} ")[0]


def _facts(page: Path) -> dict[str, str]:
    """The line of facts under a runbook's title, by name."""
    (line,) = FACTS.findall(_text(page))
    return {name.lower(): value for name, _, value in (fact.partition(": ") for fact in line.split("; "))}


def test_every_alert_has_a_runbook_and_every_runbook_an_alert() -> None:
    assert {page.stem for page in RUNBOOKS} == set(ALERTS) | OFF


@for_each("page", RUNBOOKS, ids=lambda page: page.stem)
def test_a_runbook_has_its_sections_in_order_each_with_what_belongs_there(page: Path) -> None:
    assert re.findall(r"^# (.+)$", _prose(page), re.MULTILINE) == [page.stem]
    titles = tuple(re.findall(r"^## (.+)$", _prose(page), re.MULTILINE))
    assert titles in {SECTIONS, SECTIONS[:-1]}
    assert [title for title in titles if not _section(page, title).strip()] == []
    # Our metrics are asked first, and then the host.
    diagnosis = _text(page).split("## Diagnosis\n")[1].split("\n## ")[0]
    assert [language for language, _ in FENCE.findall(diagnosis)] == ["promql", "console"]
    numbers = re.findall(r"^(\d+)\. ", _section(page, "Mitigation"), re.MULTILINE)
    assert numbers == [str(number) for number in range(1, len(numbers) + 1)]
    assert numbers


@for_each("page", [page for page in RUNBOOKS if page.stem not in OF_FINDINGS], ids=lambda page: page.stem)
def test_a_runbook_whose_facts_are_not_generated_agrees_with_its_rule(page: Path) -> None:
    rules, facts = ALERTS[page.stem], _facts(page)
    assert set(facts["severity"].split(" or ")) == {rule.labels["severity"] for rule in rules}
    assert set(facts["action"].split(" or ")) == {rule.labels["action"] for rule in rules}
    of_exporter = any(rule.group in {"gpu-triage-targets", "gpu-triage-exporter"} for rule in rules)
    steps = STEPS[:1] if of_exporter else STEPS
    assert facts["step"] in {f"[{step[0]}](../playbook.md#{_slug(step)})" for step in steps}
    assert facts["for"] == " or ".join(dict.fromkeys(rule.hold or "at once" for rule in rules))
    assert set(filter(None, facts.get("keep", "").split(" or "))) == {rule.keep for rule in rules if rule.keep}


def test_a_runbook_of_findings_names_their_waits_and_holds_in_its_facts_alone() -> None:
    named = [
        (page.stem, int(found[1]) * SECONDS[found[2][0]])
        for page in RUNBOOKS
        if page.stem in OF_FINDINGS
        for found in LENGTH.finditer(FACTS.sub("", _prose(page)))
    ]
    lengths = {(each.runbook, seconds) for each in CHECKS for seconds in (each.wait_seconds, each.hold_seconds)}
    assert named
    assert [each for each in named if each in lengths] == []


@for_each("step", STEPS)
def test_a_step_of_the_playbook_links_the_list_of_its_runbooks(step: str) -> None:
    assert f"(runbooks/README.md#{_slug(step)})" in _section(PLAYBOOK, step)


def test_the_playbook_has_the_bottleneck_classes_in_the_order_of_the_ladder() -> None:
    classes = _text(PLAYBOOK).split("\n## Bottleneck classes\n")[1].split("\n## ")[0]
    assert tuple(re.findall(r"^### (\w+)$", classes, re.MULTILINE)) == CLASSES


@for_each("name", CLASSES)
def test_a_class_and_its_runbooks_link_each_other(name: str) -> None:
    section = _section(PLAYBOOK, name)
    assert "**Decide:**" in section
    from_class = {Path(target).stem for target in LINK.findall(section) if target.startswith("runbooks/")}
    assert from_class == {page.stem for page in RUNBOOKS if f"[{name}](" in _facts(page).get("class", "")}


@for_each("page", PAGES, ids=lambda page: page.stem)
def test_a_page_has_no_table_which_a_terminal_could_not_show(page: Path) -> None:
    assert not re.search(r"^\|", _prose(page), re.MULTILINE)


@for_each("page", PAGES, ids=lambda page: page.stem)
def test_options_named_exist(page: Path) -> None:
    known = set(OPTION.findall(_text(DOCS / "configuration.md").replace("--[no-]", "--")))
    assert set(OPTION.findall(_text(page))) - known - {"collector.NAME"} == set()


def test_rules_that_are_quiet_for_serving_hosts_are_told_of() -> None:
    opting_out = {rule.name for rule in alerts(RULES) if re.search(r'workload!?="serving"', rule.expr)}
    assert opting_out == {page.stem for page in RUNBOOKS if 'workload="serving"' in _section(page, "Meaning")}
