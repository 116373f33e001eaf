"""The lists of runbooks in the index and in the playbook, from what each runbook says about itself."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SEVERITIES: Final = (
    ("critical", "Critical: pages a person"),
    ("warning", "Warning: a ticket"),
    ("info", "Info: context"),
    ("none", "None: always fires"),
)
_STEP: Final = re.compile(r"\[(?P<title>.+?)\]\(\.\./playbook\.md#(?P<anchor>[\w-]+)\)")
_STEP_TABLE: Final = re.compile(r"<!-- alerts: ([\w-]+) -->\n.*?<!-- /alerts -->", re.DOTALL)
_LIST: Final = re.compile(r"<!-- runbooks -->\n.*?<!-- /runbooks -->", re.DOTALL)
_HEAD: Final = "| alert | severity, for | action | class | it tells you |\n|---|---|---|---|---|\n"


@dataclass(frozen=True, slots=True)
class Summary:
    """What a runbook says about its alert in its first lines.

    Attributes:
        name: of the alert.
        told: its first sentence.
        severity, wait, action: as the rules have them; both values where there are two rules.
        step, anchor: of the playbook.
        bottleneck: the cell of its bottleneck class, with a link as the playbook has it.
    """

    name: str
    told: str
    severity: str
    wait: str
    action: str
    step: str
    anchor: str
    bottleneck: str


def summary(name: str, text: str) -> Summary:
    """What the runbook of an alert says first.

    Raises:
        ValueError: its table of facts is not where it belongs.
    """
    head = text.partition("\n## ")[0]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in head.splitlines() if line[:1] == "|"]
    facts = dict(zip(cells[0], cells[2], strict=True))
    step = _STEP.fullmatch(facts["playbook step"])
    if step is None:
        raise ValueError(f"{name}: the table has no link to a step of the playbook")
    told = first_sentence(text)
    bottleneck = facts["bottleneck class"].replace("../playbook.md", "")
    return Summary(
        name, told, facts["severity"], facts["for"], facts["action"], step["title"], step["anchor"], bottleneck
    )


def first_sentence(text: str) -> str:
    """The first sentence under a page's title."""
    return " ".join(text.split("\n\n")[1].split()).split(". ")[0].removesuffix(".") + "."


def summaries(runbooks: Path) -> tuple[Summary, ...]:
    """Those of all runbooks: by step, then the most severe first, then by name."""
    ranks = [severity for severity, _ in SEVERITIES]
    found = (summary(path.stem, path.read_text(encoding="utf-8")) for path in runbooks.glob("Gpu*.md"))
    return tuple(sorted(found, key=lambda each: (each.step, ranks.index(each.severity.split(" or ")[0]), each.name)))


def with_step_tables(playbook: str, alerts: Iterable[Summary]) -> str:
    """The playbook with the table of each step's alerts between its markers."""
    alerts = tuple(alerts)

    def table(marker: re.Match[str]) -> str:
        rows = "".join(
            f"| [{each.name}](runbooks/{each.name}.md) | {each.severity}, {each.wait} | {each.action} "
            f"| {each.bottleneck} | {each.told} |\n"
            for each in alerts
            if each.anchor == marker[1]
        )
        return f"<!-- alerts: {marker[1]} -->\n{_HEAD}{rows}<!-- /alerts -->"

    return _STEP_TABLE.sub(table, playbook)


def with_lists(index: str, alerts: Iterable[Summary]) -> str:
    """The index with the runbooks by step and by severity between its markers."""
    alerts = tuple(alerts)
    steps = dict.fromkeys((each.step, each.anchor) for each in alerts)
    by_step = "\n".join(
        f"### [{step}](../playbook.md#{anchor})\n\n"
        + "".join(
            f"- [{each.name}]({each.name}.md) ({each.severity}): {each.told}\n" for each in alerts if each.step == step
        )
        for step, anchor in steps
    )
    by_severity = "\n".join(
        f"### {title}\n\n"
        + "".join(f"- [{each.name}]({each.name}.md)\n" for each in alerts if severity in each.severity.split(" or "))
        for severity, title in SEVERITIES
    )
    text = f"## By step\n\n{by_step}\n## By severity\n\n{by_severity}"
    return _LIST.sub(lambda _: f"<!-- runbooks -->\n{text}<!-- /runbooks -->", index)
