"""An accepted finding, on a virtual clock: where it stays visible, what it no longer causes, and when that ends."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.incident_hosts import event, fields_of, restarted
from tests.one_shot import finding
from tests.rig import Rig, only, rig, scenario_with
from tests.status_pages import body_of

from gpu_triage.cli.measure import measure
from gpu_triage.driver.kernel.procfs import read_boot
from gpu_triage.errors import ConfigError
from gpu_triage.judge.findings.accepted import accept, compared, outgrown_text, valid
from gpu_triage.judge.findings.finding import Finding, State
from gpu_triage.judge.findings.saved import SAVED_FINDINGS, SavedLives
from gpu_triage.judge.findings.states import Life
from gpu_triage.judge.findings.table import BY_CODE, CHECKS, Measure, Severity, Unit
from gpu_triage.judge.findings.verdicts import EXIT_SOUND, Verdict
from gpu_triage.judge.report.headline import headline
from gpu_triage.judge.report.machine_readable import render_json, render_lines, report_from_json
from gpu_triage.judge.report.text import render_text
from gpu_triage.options.config import Config, JudgeOption
from gpu_triage.read.incidents.decisions import MOST_DAYS, Acceptance, change_decisions, read_decisions

pytestmark = pytest.mark.slow

CODE, HOUR, WAIT = "pcie.width", 3600, 120
COLLECTORS = ("activity", "pcie", "pcie_limits", "power", "clocks", "throttle", "identity", "decisions")
BUSY = 'kind = "load", utilization = 0.95, intensity = 0.8, pcie_receive_bytes_per_second = 9e9'
REASON = 'riser on order <b> "x" {{ . }}'


def link(at: int, width: int, until: int | None = None) -> str:
    return event(at, f'kind = "link", width = {width}', until=until)


@pytest.fixture
def config(tmp_path: Path) -> Config:
    folder = tmp_path / "state"
    folder.mkdir()
    judge = (JudgeOption(CODE, "wait", f"{WAIT}s"), JudgeOption(CODE, "hold", f"{WAIT}s"))
    every = {"sample_fast_seconds": 10.0, "sample_medium_seconds": 10.0}
    return only(*COLLECTORS, state_directory=folder, judge=judge, **every)


@pytest.fixture
def running(tmp_path: Path, config: Config) -> Iterator[Rig]:
    """A GPU with 8 of 16 lanes, from minute 40 to 50 with 4, and from minute 80 on another board."""
    events = (
        event(10, BUSY),
        link(20, 8, until=2400),
        link(2400, 4, until=3000),
        link(3000, 8, until=4800),
        event(4800, 'kind = "replace_gpu", model = "a10"'),
        link(4810, 8),
    )
    with rig(scenario_with(tmp_path, "idle-downshift", *events), config) as running:
        running.run_to(600)
        yield running


def folder_of(running: Rig) -> Path:
    assert running.config.state_directory is not None
    return running.config.state_directory


def accepts(running: Rig, code: str = CODE, seconds: int = 5 * HOUR, gpu: str = "0", *, critical: bool = True) -> None:
    now, boot = running.clock.now().wall, read_boot(running.simulated.machine.procfs).boot_id
    wish = Acceptance(code, gpu, "", "info", None, now, now + seconds, "jd", REASON)
    accept(folder_of(running), wish, boot, even_critical=critical)


def state(running: Rig) -> float | None:
    return max((value for _, value in running.series("gpu_finding", gpu="0", code=CODE)), default=None)


def test_it_is_marked_everywhere_and_nothing_follows_from_it(running: Rig) -> None:
    assert (state(running), running.report.verdict) == (2, Verdict.DRAIN)
    accepts(running)
    running.run(30)
    report = running.report
    assert (state(running), report.verdict, report.gpus[0].verdict) == (3, Verdict.KEEP, Verdict.KEEP)
    assert [report.exit_code(severity) for severity in (Severity.CRITICAL, Severity.WARNING)] == [EXIT_SOUND] * 2
    ((labels, until),) = running.series("gpu_finding_accepted_until_timestamp_seconds")
    assert (labels["gpu"], labels["code"], labels["by"], labels["reason"]) == ("0", CODE, "jd", REASON)
    assert 0 < until - running.clock.now().wall < 5 * HOUR
    assert headline(report).endswith(f"accepted: {CODE}")
    assert f"accepted  by jd until 2026-01-15 05:10 UTC: {REASON}" in render_text(report)
    assert [line.split("\t")[3] for line in render_lines(report).splitlines() if CODE in line][-1] == "info"
    assert running.judge.latest is not None
    page = body_of(running.judge.latest)
    assert '<p class="accepted">Accepted by jd until 2026-01-15 05:10 UTC: riser on order &lt;b&gt;' in page
    assert "<b> " not in page
    again = finding(report_from_json(render_json(report)), CODE)
    assert again.accepted is not None
    assert (again.accepted.by, again.accepted.reason, again.urgency) == ("jd", REASON, Severity.INFO)
    looked = measure(running.simulated.machine, running.config, 30.0).report
    assert (finding(looked, CODE).urgency, looked.verdict) == (Severity.INFO, Verdict.KEEP)


def test_it_alerts_again_while_it_is_clearly_worse_and_until_it_ends(running: Rig) -> None:
    accepts(running)
    running.run_to(2390)
    assert state(running) == 3
    running.run_to(2400 + WAIT + 60)
    assert (state(running), running.report.verdict) == (2, Verdict.DRAIN)
    assert "accepted as x8, now x4" in finding(running.report, CODE).measured
    ((since, _),) = running.series("gpu_finding_since_timestamp_seconds", code=CODE)
    assert since["detail"] == "x4 of x16; accepted as x8, now x4"
    again = restarted(running)
    again.run(60)
    again.run_to(3300)
    assert state(again) == 2, "it is as it was accepted, but has been worse"
    accepts(again)
    again.run(30)
    assert state(again) == 3


def test_a_peak_that_is_shorter_than_the_wait_is_not_worse(tmp_path: Path, config: Config) -> None:
    events = (event(10, BUSY), link(20, 8, until=900), link(900, 4, until=900 + WAIT - 30), link(900 + WAIT - 30, 8))
    with rig(scenario_with(tmp_path, "idle-downshift", *events), config) as running:
        running.run_to(600)
        accepts(running)
        running.run_to(1500)
        assert state(running) == 3


def test_it_alerts_from_its_date_on_and_with_another_board(running: Rig) -> None:
    accepts(running, seconds=300)
    running.run(290)
    assert state(running) == 3
    running.run(20)
    assert state(running) == 2
    accepts(running)
    running.run_to(4790 + WAIT)
    running.run(2 * WAIT)
    assert {value for _, value in running.series("gpu_finding", gpu="0", code=CODE)} >= {2.0}
    assert running.report.verdict is Verdict.DRAIN


def test_a_restarted_exporter_knows_before_its_first_judgment(running: Rig) -> None:
    accepts(running)
    running.run(60)
    again = restarted(running)
    again.run(0)
    assert state(again) in (None, 3)
    again.run(30)
    assert state(again) == 3


@pytest.mark.parametrize(
    "damage",
    ["{", '{"version": 1, "accepted": [{"code": "pcie.width"}]}', '{"version": 9}'],
    ids=["cut", "wrong", "new"],
)
def test_a_broken_file_accepts_nothing_and_is_reported(
    running: Rig, damage: str, caplog: pytest.LogCaptureFixture
) -> None:
    accepts(running)
    running.run(30)
    (folder_of(running) / "decisions.json").write_text(damage)
    running.run(120)
    assert (state(running), running.value("gpu_exporter_collector_success", collector="decisions")) == (2, 0)
    assert any("decisions" in line for line in running.report.not_read)
    (record,) = (each for each in caplog.records if each.getMessage() == "collector failed")
    assert "decisions.json" in fields_of(record)["cause"]
    with pytest.raises(Exception, match=r"decisions\.json"):
        change_decisions(folder_of(running), lambda present: present)


def test_texts_with_control_characters_or_too_long_are_refused(running: Rig) -> None:
    accepts(running)
    path = folder_of(running) / "decisions.json"
    document = json.loads(path.read_text())
    for text in ("a\nb", "\x1b[2J", "x" * 101):
        document["accepted"][0]["reason"] = text
        path.write_text(json.dumps(document))
        with pytest.raises(Exception, match="reason"):
            read_decisions(folder_of(running))


def test_a_date_too_far_away_is_not_in_force(running: Rig) -> None:
    accepts(running, seconds=(MOST_DAYS + 2) * 86_400)
    running.run(30)
    assert state(running) == 2


def test_what_makes_a_gpu_sick_is_refused_and_what_is_critical_needs_a_flag(running: Rig) -> None:
    with pytest.raises(ConfigError, match="--even-critical"):
        accepts(running, critical=False)
    with pytest.raises(ConfigError, match=r"GPU 0 has no finding 'thermal\.hw'; it has .*pcie\.width"):
        accepts(running, "thermal.hw")
    sick = {check.code for check in CHECKS if check.is_sickness}
    assert {"gpu.lost", "ecc.uncorrected", "xid.79", "memory.row_remap_failure"} <= sick
    assert {"pcie.width", "thermal.hw", "power.brake"}.isdisjoint(sick)


def test_a_board_that_is_known_by_its_slot_alone_is_refused(tmp_path: Path) -> None:
    said = "NVRM: GPU 0000:b3:00.0: GPU does not have the necessary power cables connected."
    unpowered = f'at = 5\neffect = {{ kind = "kernel_messages", texts = ["{said}"] }}'
    used = only("identity", "power", "host_kernel_log", "decisions", state_directory=tmp_path)
    with rig(scenario_with(tmp_path, "no-driver", unpowered), used) as running:
        running.run_to(120)
        with pytest.raises(ConfigError, match="has no UUID, so the acceptance would pass to the next board"):
            accepts(running, "driver.power_cables", gpu="0000:b3:00.0")


def test_what_follows_from_an_accepted_finding_is_as_quiet(tmp_path: Path, config: Config) -> None:
    hot = 'kind = "thermal_throttle", source = "{}", sm_clock_mhz = 900'
    used = only(
        "throttle",
        "thermal",
        "power",
        "clocks",
        "activity",
        "identity",
        "decisions",
        state_directory=config.state_directory,
    )
    events = [event(10, hot.format(source)) for source in ("hw", "sw")]
    with rig(scenario_with(tmp_path, "rtx-4070-ti-super", *events), used) as running:
        running.run_to(400)
        assert finding(running.report, "thermal.sw").urgency is Severity.WARNING
        accepts(running, "thermal.hw")
        running.run(30)
        assert running.report.exit_code(Severity.WARNING) == EXIT_SOUND


@pytest.mark.parametrize(
    ("measure", "then", "now", "worse"),
    [
        (Measure(Unit.LANES, "x{}"), 8, 4, True),
        (Measure(Unit.LANES, "x{}"), 8, 16, False),
        (Measure(Unit.COUNT, "{}"), 100, 199, False),
        (Measure(Unit.COUNT, "{}"), 100, 200, True),
        (Measure(Unit.COUNT, "{}", parts=True), 2, 3, True),
        (Measure(Unit.RATIO, "{}"), 0.3, 0.45, False),
        (Measure(Unit.RATIO, "{}"), 0.3, 0.5, True),
        (Measure(Unit.RATIO, "{}"), 0.9, 1.0, True),
        (Measure(Unit.RATIO, "{}"), 0.99, 1.0, False),
        (Measure(Unit.RATIO, "{}", low=True), 0.8, 0.5, True),
        (Measure(Unit.CELSIUS, "{} left", low=True), 8, 2, True),
        (Measure(Unit.HERTZ, "{}"), 1.4e9, 1.3e9, False),
    ],
)  # fmt: skip
def test_when_a_value_is_clearly_worse(measure: Measure, then: float, now: float, *, worse: bool) -> None:
    assert measure.is_clearly_worse(now, then) is worse


@pytest.mark.parametrize(
    ("code", "then", "now", "text"),
    [
        ("nvlink.down", (1, "link 3"), (1, "link 7"), "accepted for link 3"),
        ("nvlink.down", (2, "link 3, 4"), (1, "link 7"), "accepted for link 3, 4"),
        ("nvlink.down", (4, "link 3-6"), (2, "link 4, 6"), ""),
        ("nvlink.down", (1, "link 3"), (2, "link 3, 4"), "accepted as 1 link, now 2 links"),
        ("baseline.drift", (4, "a, b, c and 1 more"), (3, "b, c, d"), ""),
        ("c2c.down", (2, "2 of 4 links are up"), (1, "3 of 4 links are up"), ""),
    ],
)
def test_a_fault_of_another_part_is_worse(
    code: str, then: tuple[float, str], now: tuple[float, str], text: str, tmp_path: Path
) -> None:
    found = [Finding(BY_CODE[code], "", "0", "GPU-1", value=value, detail=detail) for value, detail in (then, now)]
    before, after = (Life(each, State.CONFIRMED, 1.0, 1.0, 2.0, 2.0) for each in found)
    (tmp_path / "findings.json").write_bytes(SAVED_FINDINGS.encode(SavedLives("boot", (before,))))
    accept(tmp_path, Acceptance(code, "0", "", "info", None, 100.0, 200.0, "jd", "x"), "boot", even_critical=False)
    decided = valid(read_decisions(tmp_path), 100.0)
    for life, worse in ((before, ""), (after, text)):
        assert outgrown_text(compared(life, decided.get(life.key), None), decided) == worse
