"""`gpu-triage check` on a simulated host at a scenario time, on a virtual clock."""

from dataclasses import replace

from gpu_triage.cli.measure import measure
from gpu_triage.judge.findings.finding import Finding
from gpu_triage.judge.report.report import Report
from gpu_triage.options.config import Config
from gpu_triage.options.option_sources import combined
from gpu_triage.options.option_table import all_options
from gpu_triage.read.registry import COLLECTOR_SWITCHES
from gpu_triage_simulator import Scenario, VirtualClock, simulated_machine

_SETTLING_SECONDS = 1.0
"""From the first step of a sampler on a virtual clock until everything has been read once."""


def look_at(
    scenario: Scenario,
    at_seconds: float,
    *,
    seconds: float = 10.0,
    patience_seconds: float = 30.0,
    config: Config | None = None,
) -> Report:
    clock = VirtualClock()
    begin = max(0.0, at_seconds - seconds - _SETTLING_SECONDS)
    with simulated_machine(scenario, clock=clock, starting_at=begin) as simulated:
        plain = combined(all_options(COLLECTOR_SWITCHES), Config(simulate=scenario.name), scenario.exporter_options)
        used = simulated.remembering(config or plain)
        return measure(simulated.machine, used, seconds, patience_seconds).report


def finding(report: Report, code: str) -> Finding:
    (found,) = (each for each in report.findings if each.check.code == code)
    return found


def with_life(report: Report, code: str, **life: object) -> Report:
    def changed(finding: Finding) -> Finding:
        return replace(finding, **life) if finding.check.code == code else finding  # type: ignore[arg-type] # any field

    areas = tuple(replace(area, findings=tuple(map(changed, area.findings))) for area in report.areas)
    return replace(report, areas=areas)


def codes(report: Report, subject: str) -> set[str]:
    return {each.check.code for each in report.findings if each.subject == subject}
