"""Waits, holds and thresholds as an operator sets them: read, checked, told, and what the judge makes of them."""

import json
from pathlib import Path
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.command_line import config_from
from tests.evidence import evidence_of
from tests.status_pages import body_of

from gpu_triage.errors import ConfigError
from gpu_triage.judge.findings.settings import DEFAULT_SETTINGS, LIMITS, judge_settings, settable, shown
from gpu_triage.judge.findings.table import BY_CODE, CHECKS, Limit, Unit
from gpu_triage.judge.host_judge import DaemonJudge, HostJudge
from gpu_triage.judge.report.machine_readable import render_json
from gpu_triage.judge.report.report import JudgedHost, Report
from gpu_triage.judge.report.text import render_text
from gpu_triage.machine import Moment
from gpu_triage.options.config import JudgeOption
from gpu_triage.options.option_table import all_options
from gpu_triage.read.exporter.exporter_health import JudgeSettingsHealth
from gpu_triage.read.gpu.power import GPU_POWER_WATTS, GPU_TEMPERATURE_CELSIUS, GPU_TEMPERATURE_THRESHOLD_CELSIUS
from gpu_triage.read.gpu.presence import GPU_UP
from gpu_triage.read.incidents.decisions import DECISIONS
from gpu_triage.sampler.outcomes import OutcomeStore

ALL = [(check.code, name, limit) for check in CHECKS for name, limit in settable(check).items()]


def option(text: str) -> JudgeOption:
    key, _, value = text.partition("=")
    code, _, name = key.rpartition(".")
    return JudgeOption(code, name, value)


def test_without_options_the_table_and_its_limits_hold() -> None:
    assert DEFAULT_SETTINGS.limits["thermal.hw", "share"] == LIMITS["thermal.hw"]["share"].value
    written = ("thermal.hw.wait=5m", "thermal.hw.wait=10m", "pcie.aer.count=100")  # the later one counts
    for settings in (DEFAULT_SETTINGS, judge_settings(map(option, written))):
        assert (settings.checks, settings.changed) == (BY_CODE, ())


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
    with pytest.raises(ConfigError) as caught:
        judge_settings([option(text), option("gpu.lost.hold=10")])
    problem, other = caught.value.problems
    assert "gpu.lost.hold" in other
    assert problem.startswith("--judge: ")
    assert [fact for fact in facts if fact not in problem] == []


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


GPU: Final = ("0", "GPU-0")


class Judging:
    """A judge that looks at one GPU, at its temperature and 90 degrees of slowdown."""

    def __init__(self) -> None:
        self.judge = HostJudge(JudgedHost("host", continuous=True))

    def report(self, at: float, celsius: float) -> Report:
        """The report of a look at this second."""
        read = (
            GPU_UP.sample(1.0, *GPU),
            GPU_POWER_WATTS.sample(300.0, *GPU),
            GPU_TEMPERATURE_CELSIUS.sample(celsius, *GPU, "gpu"),
            GPU_TEMPERATURE_THRESHOLD_CELSIUS.sample(90.0, *GPU, "slowdown"),
        )
        self.latest = self.judge.judge(evidence_of((at, read)))
        return self.latest.report

    def margin(self, at: float, celsius: float) -> str:
        """State of thermal.margin after a look at this second, ``absent`` or ``ended``; how long it has lasted."""
        report = self.report(at, celsius)
        for each in (*report.findings, *report.ended):
            if each.check.code == "thermal.margin":
                return f"{each.state.name.lower()} {each.lasted_seconds:.0f}"
        return "absent"

    def set(self, *options: tuple[str, str]) -> None:
        """Judge by these settings of thermal.margin from now on."""
        self.judge.settings = judge_settings(JudgeOption("thermal.margin", name, text) for name, text in options)


def test_a_shorter_wait_confirms_what_has_lasted_as_long_already_and_a_longer_one_takes_nothing_back() -> None:
    host = Judging()
    assert [host.margin(at, 88) for at in (0, 300)] == ["pending 0", "pending 300"]
    host.set(("wait", "5m"))
    assert host.margin(305, 88) == "confirmed 305"
    host.set(("wait", "1h"))
    assert host.margin(310, 88) == "confirmed 310"


def test_another_hold_counts_for_what_is_quiet_already() -> None:
    host = Judging()
    looks = ((0, 88), (900, 88), (905, 60), (1205, 60))
    assert [host.margin(*look) for look in looks] == ["pending 0", *["confirmed 900"] * 3]
    host.set(("hold", "5m"))
    assert host.margin(1210, 60) == "ended 900"


def test_another_threshold_counts_from_the_next_look_on() -> None:
    host = Judging()
    assert host.margin(0, 83) == "absent"
    host.set(("margin", "8"))
    assert host.margin(5, 83) == "pending 0"
    host.set()
    assert host.margin(10, 83) == "absent"


def test_what_differs_from_the_defaults_is_told_with_every_verdict() -> None:
    host = Judging()
    usual = host.report(0, 60)
    assert (usual.settings, "not the defaults" in body_of(host.latest)) == ((), False)
    host.set(("wait", "5m"))
    report = host.report(5, 60)
    words = "thermal.margin waits 5 minutes instead of 15 minutes"
    setting = {"finding": "thermal.margin", "name": "wait", "value": 300, "default": 900, "unit": "seconds"}
    assert json.loads(render_json(report))["settings"] == [{**setting, "words": words}]
    assert f"settings that are not the defaults:\n    {words}" in render_text(report)
    assert f"<li>{words}</li>" in body_of(host.latest)


class Source:
    """A configuration file, and what became of reading it."""

    def __init__(self, path: Path, *arguments: str) -> None:
        self.path = path
        self.wall = 100.0
        path.write_text("judge: {thermal.hw: {wait: 5m}}")
        config = config_from([f"--config.file={path}", *arguments])
        self.judge = DaemonJudge(config, JudgedHost("a"), lambda: self.wall)

    def reload(self, content: str) -> tuple[str, ...]:
        """The changes in force after another content was read at second 200."""
        self.path.write_text(content)
        self.wall = 200.0
        assert self.judge.reload(all_options(())) is self.judge.settings_health
        tuple(self.judge.judge(OutcomeStore([DECISIONS.name]), Moment(0.0, 0.0)))
        assert self.judge.latest is not None
        return tuple(each.text for each in self.judge.latest.report.settings)


SEVEN = ("judge: {thermal.hw: {wait: 7m}}", ("thermal.hw waits 7 minutes instead of 10 minutes",))


def test_the_start_is_a_reading_and_a_changed_file_is_used(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    source = Source(tmp_path / "config.yml")
    assert source.judge.settings_health == JudgeSettingsHealth(success=True, loaded_at=100.0)
    caplog.set_level("INFO")
    assert source.reload(SEVEN[0]) == SEVEN[1]
    assert source.judge.settings_health == JudgeSettingsHealth(success=True, loaded_at=200.0)
    assert "the judge's settings were read" in caplog.text
    assert source.reload("") == ()


def test_a_flag_stays_in_force(tmp_path: Path) -> None:
    source = Source(tmp_path / "config.yml", "--judge=thermal.hw.wait=1m")
    assert source.reload("judge: {thermal.hw: {wait: 7m, hold: 1m}}") == (
        "thermal.hw waits 1 minute instead of 10 minutes",
        "thermal.hw is held for 1 minute instead of 20 minutes",
    )


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        ("judge: {thermal.hw: {wait: 7}}", "thermal.hw.wait: '7' is invalid"),
        ("judge: {thermal.hv: {wait: 7m}}", "there is no finding 'thermal.hv'"),
        ("jugde: {}", "unknown key"),
    ],
)
def test_a_bad_file_changes_nothing_is_logged_and_reported(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, content: str, cause: str
) -> None:
    source = Source(tmp_path / "config.yml")
    assert source.reload(content) == ("thermal.hw waits 5 minutes instead of 10 minutes",)
    assert source.judge.settings_health == JudgeSettingsHealth(success=False, loaded_at=100.0)
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert cause in record.__dict__["fields"]["cause"]
    assert source.reload(SEVEN[0]) == SEVEN[1]
    assert source.judge.settings_health == JudgeSettingsHealth(success=True, loaded_at=200.0)
