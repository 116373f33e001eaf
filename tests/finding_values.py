"""Findings whose value is missing, or is not what their row measures: the alert would say NaN.

No list of hosts shows every way to a finding. The recorded scenarios show most of the kinds, and the hosts that unit
tests judge show the rest.
"""

from collections.abc import Iterable, Iterator

import pytest

from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.judge.findings.finding import Finding
from gpu_triage.judge.findings.table import BY_CODE
from gpu_triage.judge.host_judge import HostJudge, Judgment
from gpu_triage.read.exporter.judgment import (
    GPU_FINDING_SINCE_TIMESTAMP_SECONDS,
    GPU_FINDING_VALUE,
    GPU_HOST_FINDING_SINCE_TIMESTAMP_SECONDS,
    GPU_HOST_FINDING_VALUE,
)
from gpu_triage_simulator.history import History

PRESENT = (GPU_FINDING_SINCE_TIMESTAMP_SECONDS.name, GPU_HOST_FINDING_SINCE_TIMESTAMP_SECONDS.name)
MEASURED = (GPU_FINDING_VALUE.name, GPU_HOST_FINDING_VALUE.name)


@pytest.fixture(scope="session")
def wrong_values() -> Iterator[set[str]]:
    """What is wrong with the values of findings that are judged in this process, a line each."""
    wrong: set[str] = set()
    judge = HostJudge.judge

    def judging(
        self: HostJudge, host: HostEvidence, error: str | None = None, more: Iterable[Finding] = ()
    ) -> Judgment:
        judgment = judge(self, host, error, more)
        wrong.update(
            f"{each.check.code}, value {each.value}: {each.measured}"
            for each in judgment.report.findings
            if is_wrong(each.check.code, measured=each.value is not None)
        )
        return judgment

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(HostJudge, "judge", judging)
        yield wrong


@pytest.fixture(autouse=True)
def findings_have_the_values_that_their_rows_measure(wrong_values: set[str]) -> Iterator[None]:
    wrong_values.clear()
    yield
    if wrong_values:
        pytest.fail("\n".join(sorted(wrong_values)))


def is_wrong(code: str, *, measured: bool) -> bool:
    """Whether a finding has a value though its row measures nothing, or none though it does."""
    return measured != (BY_CODE[code].measure is not None)


def wrong_in(history: History) -> set[str]:
    """Codes of findings in a recording that once were without their value, or had one too many."""
    values = {_subject(labels): column for (name, labels), column in history.series.items() if name in MEASURED}
    nothing = (float("nan"),) * history.steps
    return {
        dict(labels)["code"]
        for (name, labels), column in history.series.items()
        if name in PRESENT
        for since, value in zip(column, values.get(_subject(labels), nothing), strict=True)
        if since == since and is_wrong(dict(labels)["code"], measured=value == value)  # noqa: PLR0124 - NaN is no sample
    }


def _subject(labels: tuple[tuple[str, str], ...]) -> frozenset[tuple[str, str]]:
    return frozenset(label for label in labels if label[0] not in ("severity", "action"))
