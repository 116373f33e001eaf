"""What is left out where only alerts are asked for."""

from __future__ import annotations

from pathlib import Path

from tests.rules.expressions import uses
from tests.rules.pruned import rules_of_alerts
from tests.rules.rulefile import alerts, read_rules, rule_files


def test_every_alert_is_kept_and_nothing_that_is_left_out_is_read(tmp_path: Path) -> None:
    kept, shipped = read_rules(rules_of_alerts(tmp_path)), read_rules(rule_files())
    assert alerts(kept) == alerts(shipped)
    left_out = {rule.name for rule in shipped} - {rule.name for rule in kept}
    assert "name:gpu_busy:avg1d" in left_out
    read = {use.metric for rule in kept for query in (rule.expr, *rule.queries()) for use in uses(query)}
    assert left_out & read == set()


def test_what_a_question_reads_is_kept(tmp_path: Path) -> None:
    kept = {rule.name for rule in read_rules(rules_of_alerts(tmp_path, ("sum(name:gpu_busy:avg1d)",)))}
    assert {"name:gpu_busy:avg1d", "instance_gpu_name:gpu_busy:last5m", "instance_gpu:gpu_busy:ratio5m"} <= kept
