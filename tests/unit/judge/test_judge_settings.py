"""Waits, holds and thresholds as an operator sets them: read, checked, told, and what the judge makes of them."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_triage.errors import ConfigError
from gpu_triage.judge.findings.check import Unit
from gpu_triage.judge.findings.limits import LIMITS, Limit
from gpu_triage.judge.findings.settings import DEFAULT_SETTINGS, judge_settings, settable, shown
from gpu_triage.judge.findings.table import BY_CODE, CHECKS
from gpu_triage.options.config import JudgeOption

ALL = [(check.code, name, limit) for check in CHECKS for name, limit in settable(check).items()]


def option(text: str) -> JudgeOption:
    key, _, value = text.partition("=")
    code, _, name = key.rpartition(".")
    return JudgeOption(code, name, value)


def problems(*texts: str) -> tuple[str, ...]:
    with pytest.raises(ConfigError) as caught:
        judge_settings(map(option, texts))
    return caught.value.problems


def test_without_options_the_table_and_its_limits_hold() -> None:
    assert DEFAULT_SETTINGS.checks == BY_CODE
    assert DEFAULT_SETTINGS.limits["thermal.hw", "share"] == LIMITS["thermal.hw"]["share"].value
    assert DEFAULT_SETTINGS.changed == ()


def test_every_limit_belongs_to_a_finding_and_its_default_is_in_its_range() -> None:
    assert set(LIMITS) <= set(BY_CODE)
    assert [(code, name) for code, name, limit in ALL if not limit.low <= limit.value <= limit.high] == []
    assert all({"wait", "hold"}.isdisjoint(limits) for limits in LIMITS.values())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("thermal.hw.share=0.2", 0.2),
        ("thermal.hw.share=20%", 0.2),
        ("thermal.hw.share=7 %", 0.07),
        ("thermal.margin.margin=8", 8.0),
        ("thermal.margin.margin=8 °C", 8.0),
        ("pcie.aer.count=250", 250.0),
        ("memory.swapping.rate=1MiB", 1024.0**2),
        ("memory.swapping.rate=1.5 MiB/s", 1.5 * 1024**2),
        ("memory.swapping.rate=4096", 4096.0),
        ("storage.starved.nfs=80ms", 0.08),
    ],
)
def test_a_threshold_is_written_with_its_unit(text: str, value: float) -> None:
    written = option(text)
    assert judge_settings([written]).limits[written.code, written.name] == value


def test_waits_and_holds_change_the_rows_and_nothing_else() -> None:
    settings = judge_settings([option("thermal.hw.wait=5m"), option("pcie.width.hold=1 h"), option("gpu.lost.wait=0s")])
    assert settings.checks["thermal.hw"].wait_seconds == 300
    assert settings.checks["pcie.width"].hold_seconds == 3600
    others = set(BY_CODE) - {"thermal.hw", "pcie.width"}
    assert all(settings.checks[code] is BY_CODE[code] for code in others)
    assert settings.limits == DEFAULT_SETTINGS.limits


def test_the_later_of_two_counts_and_a_default_is_no_change() -> None:
    settings = judge_settings(
        [option("thermal.hw.wait=5m"), option("thermal.hw.wait=10m"), option("pcie.aer.count=100")]
    )
    assert settings.checks == BY_CODE
    assert settings.changed == ()


def test_changes_are_told_in_the_tables_order_and_in_words() -> None:
    texts = ("pcie.aer.count=250", "thermal.margin.margin=8", "thermal.hw.wait=5m", "thermal.hw.share=20%")
    more = ("memory.swapping.rate=1MiB", "thermal.hw.hold=1h", "gpu.lost.wait=90s")
    assert [each.text for each in judge_settings(map(option, texts + more)).changed] == [
        "gpu.lost waits 90 seconds instead of 0 seconds",
        "thermal.hw waits 5 minutes instead of 10 minutes",
        "thermal.hw is held for 1 hour instead of 20 minutes",
        "thermal.hw share 20% instead of 10%",
        "thermal.margin margin 8 °C instead of 5 °C",
        "pcie.aer count 250 instead of 100",
        "memory.swapping rate 1MiB/s instead of 64KiB/s",
    ]


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        ("thermal.hv.wait=5m", ("no finding 'thermal.hv'", "thermal.hw, thermal.sw or thermal.margin")),
        ("nonsense.wait=5m", ("no finding 'nonsense'", "gpu-triage judge --print-config")),
        ("thermal.hw.wiat=5m", ("no setting 'wiat'", "wait, hold and share")),
        ("thermal.hw.wait=5", ("'5' is invalid", "from 0s to 24h, such as 10m")),
        ("thermal.hw.wait=25h", ("'25h' is out of range", "from 0s to 24h, such as 10m")),
        ("thermal.hw.share=20", ("'20' is out of range", "from 1% to 100%, such as 10%")),
        ("thermal.hw.share=much", ("'much' is invalid", "from 1% to 100%, such as 10%")),
        ("pcie.aer.count=1.5", ("'1.5' is invalid", "from 1 to 1000000, such as 100")),
        ("pcie.aer.count=5%", ("'5%' is invalid", "from 1 to 1000000, such as 100")),
        ("thermal.margin.margin=50", ("'50' is out of range", "degrees Celsius from 1 to 40, such as 5")),
        ("memory.swapping.rate=1 TB", ("'1 TB' is invalid", "from 1 to 1024GiB, such as 64KiB")),
    ],
)
def test_a_mistake_is_answered_with_what_would_be_right(text: str, facts: tuple[str, ...]) -> None:
    (problem,) = problems(text)
    assert problem.startswith("--judge: ")
    assert [fact for fact in facts if fact not in problem] == []


def test_all_mistakes_are_told_at_once() -> None:
    assert len(problems("thermal.hw.wait=5", "thermal.hw.hold=10m", "thermal.hv.wait=5m")) == 2


@pytest.mark.slow
@pytest.mark.parametrize(("code", "name", "limit"), [each for each in ALL if each[1] not in ("wait", "hold")])
def test_either_end_of_a_range_can_be_set(code: str, name: str, limit: Limit) -> None:
    for value in (limit.low, limit.value, limit.high):
        written = JudgeOption(code, name, shown(value, limit.unit))
        assert judge_settings([written]).limits[code, name] == value


@given(st.sampled_from(sorted({limit.unit for _, _, limit in ALL}, key=str)), st.text())
def test_any_text_is_a_value_or_refused_on_one_line(unit: Unit, text: str) -> None:
    code, name = next((code, name) for code, name, limit in ALL if limit.unit is unit)
    try:
        judge_settings([JudgeOption(code, name, text)])
    except ConfigError as error:
        assert len(str(error).splitlines()) == 1  # noqa: PT017 - whether it is raised is not known
