"""The first line of a report, in all its forms, never says less than what is below it."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.fed import MINUTE, Fed, loaded

from gpu_triage.judge.bottleneck.classes import UNHINDERED, Bottleneck
from gpu_triage.judge.findings.finding import Finding, State, of_gpu, of_host
from gpu_triage.judge.findings.table import CHECKS, Check
from gpu_triage.judge.findings.verdicts import CLUSTER, DESK, verdict_on
from gpu_triage.judge.host_judge import HostJudge, Judgment
from gpu_triage.judge.report.headline import STATES, headline
from gpu_triage.judge.report.report import JudgedHost, Report
from gpu_triage.read.exporter.judgment import BOTTLENECK_CLASSES
from gpu_triage.read.gpu.throttle import GPU_THROTTLE_SECONDS_TOTAL
from gpu_triage.read.metrics.metric import Sample
from gpu_triage.read.processes.on_gpu import GPU_PROCESSES


@pytest.fixture(scope="module")
def healthy() -> Judgment:
    def samples(at: float) -> Iterator[Sample]:
        for gpu in (("0", "GPU-a"), ("1", "GPU-b")):
            yield from loaded(at, 0.98, gpu)
            yield GPU_PROCESSES.sample(1, *gpu, "compute")
            yield GPU_THROTTLE_SECONDS_TOTAL.sample(0.0, *gpu, "sw_power_cap")

    fed = Fed()
    fed.run(3 * MINUTE, samples)
    assert fed.latest is not None
    return fed.latest


def with_finding(judgment: Judgment, check: Check) -> Report:
    value = None if check.measure is None else check.measure.unit.scale
    gpu = judgment.host.gpus[0]
    about = of_host(check.code, "1", value) if check.of_host else of_gpu(check.code, gpu, "1", value=value)
    return HostJudge(JudgedHost("host")).judge(judgment.host, more=[about]).report


def forms(report: Report) -> Iterator[Report]:
    """The same with the finding in each state, and GPU 0 in each class."""
    for state in (State.PENDING, State.CONFIRMED):
        for holds in (True, False, None):

            def changed(finding: Finding) -> Finding:
                return replace(finding, state=state, holds=holds)  # noqa: B023 - called at once

            areas = tuple(replace(area, findings=tuple(map(changed, area.findings))) for area in report.areas)
            verdict = verdict_on((each.urgency for area in areas for each in area.findings), was_read=True)
            for name in BOTTLENECK_CLASSES:
                first = replace(report.gpus[0], bottleneck=Bottleneck(name, "x"))
                yield replace(report, areas=areas, verdict=verdict, gpus=(first, *report.gpus[1:]))


def test_without_a_finding_nothing_holds_a_busy_gpu_back(healthy: Judgment) -> None:
    report = healthy.report
    assert report.findings == ()
    assert [gpu.bottleneck.because.endswith(UNHINDERED) for gpu in report.gpus] == [True, True]
    assert headline(report).text == "keep. 2 GPUs: all busy"


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: str(check.code))
def test_the_first_line_names_the_finding_whatever_it_is(healthy: Judgment, check: Check) -> None:
    report = with_finding(healthy, check)
    assert [each.check.code for each in report.findings] == [check.code]
    hindered = [gpu.gpu for gpu in report.gpus if not gpu.bottleneck.because.endswith(UNHINDERED)]
    assert hindered == (["0", "1"] if check.of_host else ["0"])
    for shown in forms(report):
        for words in (CLUSTER, DESK):
            line = headline(shown, words)
            assert check.code in line.text
            assert line.verdict == words.verdicts[shown.verdict]
            assert STATES[shown.gpus[0].bottleneck.name] in line.text
