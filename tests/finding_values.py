"""Findings whose value is missing, or is not what their row measures: the alert would say NaN. And unstable details.

No list of hosts shows every way to a finding: the hosts that unit tests judge show them all.
"""

import re
from collections.abc import Iterable, Iterator

import pytest

from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.judge.findings.finding import Finding
from gpu_triage.judge.findings.table import BY_CODE
from gpu_triage.judge.host_judge import HostJudge, Judgment


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
            if (each.value is None) == (BY_CODE[each.check.code].measure is not None)
            # It would be a new series at each judgment.
            or re.search(r"\bago\b|\d (s|min|h)\b|MiB", each.detail)
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
