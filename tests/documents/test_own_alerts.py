"""The examples of the page on own alerts can be used as they are."""

import math
import re
from pathlib import Path
from typing import Any

import yaml
from tests.conftest import RequiresTool
from tests.gathered import for_each
from tests.program_output import output_of
from tests.promql.queries import faults
from tests.promql.vocabulary import series_labels
from tests.rules.handwritten import gpu, merged, over, play

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```(yaml|promql|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page: str, kind: str) -> list[str]:
    return [text for found, text in BLOCK.findall((DOCS / page).read_text(encoding="utf-8")) if found == kind]


def rules() -> list[dict[str, Any]]:
    documents = [yaml.safe_load(text) for text in blocks("own-alerts.md", "yaml")]
    return [rule for document in documents for group in document["groups"] for rule in group["rules"]]


RULES = blocks("own-alerts.md", "yaml")
QUERIES = [rule["expr"] for rule in rules()] + blocks("own-alerts.md", "promql")


@for_each("query", QUERIES)
def test_a_query_answers(query: str) -> None:
    assert faults(query, series_labels(())) == []


def test_the_rules_are_valid_and_fire_when_they_should(tmp_path: Path, requires_tool: RequiresTool) -> None:
    promtool = requires_tool("promtool")
    assert (len(RULES), len(QUERIES)) == (2, 3)
    files = tuple(tmp_path / f"{number}.yml" for number in range(len(RULES)))
    for path, text in zip(files, RULES, strict=True):
        path.write_text(text, encoding="utf-8")
    output_of(promtool, "check", "rules", *files)
    # Hot from minute 10 on, with a scrape that failed at minute 30.
    hot = over((80, 10), (95, 20), (math.nan, 1), (95, 60))
    codes = {"thermal.hw": over((1, 10), (2, 20)), "pcie.aer": over((2, 30)), "pcie.width": over((2, 30))}
    series = merged(
        gpu("gpu_temperature_celsius", hot, sensor="memory", pod="x"),
        *(gpu("gpu_finding", states, code=code, severity="warning", action="x") for code, states in codes.items()),
    )
    for alert, before, fires, value in (("OurGpuMemoryHot", 35, 41, "95"), ("OurGpuHasManyFindings", 5, 20, "3")):
        played = play(promtool, tmp_path, files, {"": series}, minutes=42, shown={alert: fires})[""]
        assert before not in played.minutes(alert)
        (sent,) = played.shown[alert]
        assert {
            "instance": "a",
            "gpu": "0",
            "severity": "warning",
            "action": "inspect_hardware",
        }.items() <= sent.labels.items()
        assert value in re.findall(r"\d+", " ".join(sent.annotations.values()))
