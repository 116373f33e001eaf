"""The examples of the pages on own alerts and on thresholds can be used as they are."""

import re
from pathlib import Path
from typing import Any

import yaml
from tests.command_line import config_from
from tests.conftest import RequiresTool
from tests.gathered import for_each
from tests.program_output import output_of
from tests.promql.queries import faults
from tests.promql.vocabulary import series_labels

from gpu_triage.judge.findings.settings import judge_settings

DOCS = Path(__file__).parents[2] / "docs"
BLOCK = re.compile(r"^```(yaml|promql|console)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
MEMORY = "gpu_temperature_celsius{job='gpu-triage', instance='a', gpu='0', uuid='GPU-0', sensor='memory', pod='x'}"
FINDING = (
    "gpu_finding{{job='gpu-triage', instance='a', gpu='0', uuid='GPU-0', code='{}', severity='warning', action='x'}}"
)


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
    files = [tmp_path / f"{number}.yml" for number in range(len(RULES))]
    for path, text in zip(files, RULES, strict=True):
        path.write_text(text, encoding="utf-8")
    output_of(promtool, "check", "rules", *files)
    labels = {"instance": "a", "job": "gpu-triage", "gpu": "0", "uuid": "GPU-0"}

    def expected(at: str, alert: str, value: str = "") -> dict[str, Any]:
        """It fires with this value, or not at all."""
        rule = next(each for each in rules() if each["alert"] == alert)
        texts = {name: _filled(text, labels, value) for name, text in rule["annotations"].items()}
        fires = [{"exp_labels": {**labels, **rule["labels"]}, "exp_annotations": texts}] if value else []
        return {"eval_time": at, "alertname": alert, "exp_alerts": fires}

    document = {
        "rule_files": list(map(str, files)),
        "evaluation_interval": "1m",
        "tests": [
            {
                # Hot from minute 10 on, with a scrape that failed at minute 30.
                "interval": "1m",
                "input_series": [{"series": MEMORY, "values": "80x9 95x19 _ 95x60"}],
                "alert_rule_test": [expected("35m", "OurGpuMemoryHot"), expected("41m", "OurGpuMemoryHot", "95")],
            },
            {
                "interval": "1m",
                "input_series": [
                    {"series": FINDING.format("thermal.hw"), "values": "1x9 2x20"},
                    {"series": FINDING.format("pcie.aer"), "values": "2x30"},
                    {"series": FINDING.format("pcie.width"), "values": "2x30"},
                ],
                "alert_rule_test": [
                    expected("5m", "OurGpuHasManyFindings"),
                    expected("20m", "OurGpuHasManyFindings", "3"),
                ],
            },
        ],
    }
    file = tmp_path / "test.yml"
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    output_of(promtool, "test", "rules", file)


def _filled(text: str, labels: dict[str, str], value: str) -> str:
    """An annotation as Prometheus would write it."""
    filled = re.sub(r"\{\{ \$labels\.(\w+) \}\}", lambda found: labels[found[1]], text)
    return re.sub(r"\{\{ \$value[^}]*\}\}", value, filled)


def test_the_settings_of_the_page_on_thresholds_can_be_used(tmp_path: Path) -> None:
    (text,) = blocks("thresholds.md", "yaml")
    file = tmp_path / "config.yml"
    file.write_text(text, encoding="utf-8")
    changed = judge_settings(config_from([f"--config.file={file}"]).judge).changed
    assert [each.text.split()[0] for each in changed] == ["thermal.hw"] * 2 + ["pcie.replays"] * 2


def test_the_flag_and_the_variable_of_the_page_can_be_used() -> None:
    commands = "\n".join(blocks("thresholds.md", "console"))
    flags = re.findall(r"--judge (\S+)", commands)
    (variable,) = re.findall(r"GPU_TRIAGE_JUDGE=(\S+)", commands)
    by_flag, by_variable = (
        judge_settings(config.judge).changed
        for config in (
            config_from([f"--judge={each}" for each in flags]),
            config_from([], {"GPU_TRIAGE_JUDGE": variable}),
        )
    )
    assert by_flag == by_variable
    assert len(by_flag) == 2
