"""``gpu-triage judge``: try other wait times, hold times and thresholds on a recorded or simulated host."""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timezone
from typing import Any, Final, NamedTuple

import click

from gpu_triage.cli.machines import judged_host, stepped_host
from gpu_triage.cli.measure import play
from gpu_triage.cli.one_shot import format_option, host_options
from gpu_triage.documents import printable
from gpu_triage.errors import ConfigError
from gpu_triage.judge.evidence.wording import length_of_time
from gpu_triage.judge.findings.finding import Finding, State
from gpu_triage.judge.findings.settings import Change, JudgeSettings, judge_settings, settings_document
from gpu_triage.judge.host_judge import DaemonJudge
from gpu_triage.judge.report.machine_readable import changed_setting
from gpu_triage.log import configure
from gpu_triage.machine import Machine, Moment
from gpu_triage.options.config import JUDGE_SETTING, Config, JudgeOption
from gpu_triage.options.option import Option
from gpu_triage.options.options_command import OptionsCommand
from gpu_triage.options.values import duration
from gpu_triage.read.metrics.metric import Sample
from gpu_triage.record.bundle import read_recording
from gpu_triage.sampler.outcomes import OutcomeStore

_SECTIONS: Final = frozenset({"Expectations", "Simulation", "Configuration file"})
_SIMULATED_SECONDS: Final = 3600.0
_STEP_SECONDS: Final = 5.0  # polling interval for a simulated host; a recording uses the exporter's
FORMAT: Final = "gpu-triage-judge"
VERSION: Final = 1
_MOST_PERIODS: Final = 6
"""Maximum number of occurrences shown per finding; if there are more, the first ones and the last are shown."""


def applies(option: Option) -> bool:
    return option.section in _SECTIONS and option.key != "simulate-pace"


@click.command(
    "judge",
    cls=OptionsCommand,
    short_help="Try other waits and thresholds on a recording.",
    examples=(
        ("gpu-triage judge --replay 20260115T032000Z-gpu-3-thermal.hw.tar.gz", "when each finding came and went"),
        ("gpu-triage judge --replay night.tar.gz --set thermal.hw.wait=5m", "the same with a shorter wait"),
        ("gpu-triage judge --simulate h100-8-bad-night --for 30m --set thermal.hw.share=20%", "without a recording"),
        ("gpu-triage judge --print-config > judge.yml", "all settings, with defaults and ranges"),
    ),
    essential=("replay", "simulate", "config.file"),
)
@click.option(
    "--set",
    "changes",
    multiple=True,
    type=JUDGE_SETTING,
    metavar="FINDING.NAME=VALUE",
    help="A wait, hold or threshold to compare with what is configured; can be repeated.",
)
@click.option(
    "--for",
    "seconds",
    type=duration("1s", "24h"),
    metavar="DURATION",
    help="How long to run a scenario.  [default: 1h]",
)
@format_option(text="people", json="programs")
@click.option("--print-config", is_flag=True, help="Print all settings with their defaults, as YAML, and exit.")
@host_options(applies)
def judge_command(
    *, config: Config, changes: tuple[JudgeOption, ...], seconds: float | None, form: str, print_config: bool
) -> int:
    """Replay a recording on a virtual clock through the exporter's judge, and print when each finding became
    pending, was confirmed, and ended.

    A finding is pending while its condition holds and has not lasted for its wait. Then it is confirmed: its alert
    fires, and the verdict is that of its severity. It ends when its condition has been gone for its hold.

    With --set, a second judge with these settings looks at the same samples, and the findings that differ come
    first. Put what you like into the section "judge" of the exporter's configuration file.

    A recording of gpu-triage record or of the flight recorder holds minutes. What has a longer wait than that is
    pending at its end.

    Exit code: 0 replayed, whatever was found; 2 the options or the recording cannot be used.
    """  # noqa: D205 - the help shows it as a paragraph
    if print_config:
        click.echo(settings_document(), nl=False)
        return 0
    if config.replay is None and config.simulate is None:
        raise ConfigError("there is nothing to judge; name a recording with --replay, or a scenario with --simulate")
    if config.replay is not None and seconds is not None:
        raise ConfigError("--for is for scenarios; a recording is replayed to its end")
    configure("critical", config.log_format)
    base = judge_settings(config.judge)
    settings = {"as configured" if base.changed else "default": base}
    if changes:
        chosen = (*config.judge, *(replace(each, place="--set") for each in changes))
        settings["with these settings"] = judge_settings(chosen)
    if config.replay is not None:
        seconds = read_recording(config.replay).seconds
    else:
        step = max(_STEP_SECONDS, config.sample_fast_seconds)
        config = replace(
            config, sample_fast_seconds=step, sample_medium_seconds=max(step, config.sample_medium_seconds)
        )
    total = _SIMULATED_SECONDS if seconds is None else seconds
    with ExitStack() as stack:
        host = stepped_host(config, stack)
        began_at = host.machine.clock.now().wall
        found = _timelines(host.machine, host.config, total, settings)
    replayed = Replayed(str(config.replay or config.simulate), began_at, total, tuple(_changes(settings)), found)
    click.echo(render_text(replayed) if form == "text" else render_json(replayed), nl=False)
    return 0


def _changes(settings: Mapping[str, JudgeSettings]) -> Iterator[Change]:
    """Yield how the last settings differ from the first, as changes with the first's values as defaults."""
    several = [{(each.code, each.name): each for each in some.changed} for some in settings.values()]
    for key, change in {**several[0], **several[-1]}.items():
        before, now = (some[key].value if key in some else change.default for some in (several[0], several[-1]))
        if now != before:
            yield replace(change, value=now, default=before)


@dataclass(slots=True)
class Period:
    """One occurrence of a finding; Unix seconds by the host's clock."""

    pending_at: float  # when its condition was first found to hold
    confirmed_at: float | None = None  # None if it was not confirmed
    ended_at: float | None = None  # when it, or its condition if never confirmed, ended; None if present at the end


@dataclass(frozen=True, slots=True)
class FindingTimeline:
    """A finding as last seen, and its occurrences, oldest first, by the name of each judge's settings."""

    finding: Finding
    periods: Mapping[str, Sequence[Period]]

    @property
    def differs(self) -> bool:
        first, *others = self.periods.values()
        return any(each != first for each in others)

    @property
    def first_at(self) -> float:
        return next(periods[0].pending_at for periods in self.periods.values() if periods)


class Replayed(NamedTuple):
    """What judges with different settings found on the same samples."""

    source: str  # the recording or scenario
    began_at: float  # Unix seconds
    seconds: float  # duration
    changes: Sequence[Change]  # settings that differ between the judges
    findings: Sequence[FindingTimeline]  # the most severe first, then by time


class _WatchedJudge(DaemonJudge):
    """The daemon's judge, recording the occurrences of its findings, by subject (UUID, or its name) and code."""

    def __init__(self, config: Config, settings: JudgeSettings) -> None:
        super().__init__(config, judged_host(config, continuous=True))
        self.settings = settings
        self.beside: Sequence[_WatchedJudge] = ()  # judges of the same samples; what they say is not published
        self.seen: dict[tuple[str, str], Finding] = {}
        self.periods: defaultdict[tuple[str, str], list[Period]] = defaultdict(list)

    def judge(self, store: OutcomeStore, now: Moment) -> Iterator[Sample]:
        for judge in self.beside:
            judge.judge(store, now)
        samples = super().judge(store, now)
        assert self.latest is not None  # noqa: S101 - it has just judged
        found = {(each.uuid or each.subject, each.check.code): each for each in self.latest.report.findings}
        self.seen |= found
        for key, finding in found.items():
            periods = self.periods[key]
            if not periods or periods[-1].ended_at is not None:
                periods.append(Period(now.wall))
            if finding.state is State.CONFIRMED and periods[-1].confirmed_at is None:
                periods[-1].confirmed_at = now.wall
        for key, periods in self.periods.items():
            if key not in found and periods[-1].ended_at is None:
                periods[-1].ended_at = now.wall
        return samples


def _timelines(
    machine: Machine, config: Config, seconds: float, settings: Mapping[str, JudgeSettings]
) -> list[FindingTimeline]:
    """What judges with these settings find on a machine that is sampled once for all of them, at full speed."""
    judges = {name: _WatchedJudge(config, each) for name, each in settings.items()}
    first, *others = judges.values()
    first.beside = others
    play(machine, config, first, seconds)
    seen = {key: finding for judge in reversed(judges.values()) for key, finding in judge.seen.items()}
    found = [
        FindingTimeline(finding, {name: judge.periods.get(key, []) for name, judge in judges.items()})
        for key, finding in seen.items()
    ]
    return sorted(found, key=lambda each: (-each.finding.severity.rank, each.first_at))


def render_text(replayed: Replayed) -> str:
    began_at, findings = replayed.began_at, replayed.findings
    began, ended = (f"{_moment(at):%Y-%m-%d %H:%M:%S}" for at in (began_at, began_at + replayed.seconds))
    lines = [f"{printable(replayed.source)}: {began} to {ended} UTC, {length_of_time(replayed.seconds)}"]
    lines += (f"  {each.text}" for each in replayed.changes)
    if not findings:
        lines += ["", "No findings."]
    elif len(findings[0].periods) > 1:
        differing = sum(each.differs for each in findings)
        lines += ["", f"{differing} of {len(findings)} findings {'differs' if differing == 1 else 'differ'}."]
    for each in sorted(findings, key=lambda each: not each.differs):
        lines += _finding(each)
    return "\n".join(lines) + "\n"


def render_json(replayed: Replayed) -> str:
    """Return the timelines as JSON; docs/check.md describes the format. Times are Unix seconds by the host's clock."""
    document = {
        "format": FORMAT,
        "version": VERSION,
        "source": replayed.source,
        "began_at": round(replayed.began_at, 3),
        "ended_at": round(replayed.began_at + replayed.seconds, 3),
        "settings": [changed_setting(each) for each in replayed.changes],
        "findings": [_finding_document(each) for each in replayed.findings],
    }
    return json.dumps(document, indent=2) + "\n"


def _finding_document(timeline: FindingTimeline) -> dict[str, Any]:
    finding = timeline.finding
    return {
        "code": finding.check.code,
        "severity": finding.severity.value,
        "alert": finding.check.alert,
        "gpu": finding.gpu,
        "uuid": finding.uuid or None,
        "pci_bus_id": finding.pci_bus_id or None,
        "measured": finding.measured,
        "differs": timeline.differs,
        "periods": {
            name: [{key: at and round(at, 3) for key, at in asdict(each).items()} for each in periods]
            for name, periods in timeline.periods.items()
        },
    }


def _moment(wall: float) -> datetime:
    return datetime.fromtimestamp(wall, timezone.utc)


def _finding(timeline: FindingTimeline) -> Iterator[str]:
    finding = timeline.finding
    yield ""
    yield f"{finding.severity.value} {finding.subject} {finding.check.code}: {printable(finding.measured)}"
    width = max(map(len, timeline.periods)) + 2 if len(timeline.periods) > 1 else 0
    for name, periods in timeline.periods.items():
        lines = [", ".join(_stages(period)) for period in periods] or ["not found"]
        if len(lines) > _MOST_PERIODS:
            lines[_MOST_PERIODS - 1 : -1] = [f"{len(lines) - _MOST_PERIODS} more times"]
        label = name.ljust(width) if width else ""
        for line in lines:
            yield f"  {label}{line}"
            label = " " * width


def _stages(period: Period) -> Iterator[str]:
    yield f"pending {_moment(period.pending_at):%H:%M:%S}"
    if period.confirmed_at is not None:
        yield f"confirmed {_moment(period.confirmed_at):%H:%M:%S}"
    if period.ended_at is not None:
        word = "over" if period.confirmed_at is None else "ended"
        yield f"{word} {_moment(period.ended_at):%H:%M:%S}"
    elif period.confirmed_at is None:
        yield "not confirmed by the end"
