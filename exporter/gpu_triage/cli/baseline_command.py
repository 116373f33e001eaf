"""``gpu-triage baseline``: record the state of this host, show what has changed since, and accept a change."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Final

import click

from gpu_triage.cli.machines import kept_apart, live_host
from gpu_triage.cli.measure import measure_configured, sample_for
from gpu_triage.cli.one_shot import duration_option, format_option, host_options
from gpu_triage.documents import packaged_toml, printable
from gpu_triage.errors import BaselineError
from gpu_triage.judge.conditions.links import LINK_ADVICE, Attribute, weaker_part
from gpu_triage.judge.findings.table import BY_CODE, Severity
from gpu_triage.judge.report.entries import life_cycle
from gpu_triage.log import configure
from gpu_triage.options.config import Config
from gpu_triage.options.options_command import OptionsCommand
from gpu_triage.options.values import OneOf, duration
from gpu_triage.read.baseline import host_facts
from gpu_triage.read.baseline.differences import ACCEPTABLE, BOARD, Comparison, accepted, changes
from gpu_triage.sampler.sampler import Sampler
from gpu_triage.sampler.state_directory import BASELINE, StateDirectory

_OPTIONS: Final = ("sample.deadline", "path.procfs", "path.sysfs", "replay", "simulate", "simulate-at", "config.file")
_ALL: Final = "all"
_CHECK_SECONDS: Final = 3.0  # measuring time for critical findings: a few rounds of the counters

_MEANINGS: Final = packaged_toml(__package__, "baseline_meanings.toml")


def _flags(*more: str) -> Callable[[Callable[..., int]], Callable[..., int]]:
    # Without persistence mode, the driver needs seconds to wake each GPU.
    within = duration_option("--within", "within", duration("1s", "1h"), "20s", "How long reading it all may take.")
    host = host_options(lambda option: option.key in (*_OPTIONS, *more))
    return lambda command: within(host(command))


@click.group("baseline", short_help="Record this host while it is healthy; show and accept changes.")
def baseline_command() -> None:
    """Record what this host is like while it is healthy, show what changed since, and accept what was meant to.

    The exporter compares with it all the time: gpu-triage serve --baseline.file FILE
    """


@baseline_command.command("write", cls=OptionsCommand)
@click.argument("file", required=False, type=Path)
@click.option("--force", is_flag=True, help="Replace FILE if it exists.")
@click.option("--despite-findings", is_flag=True, help="Record the host as it is, also if check has critical findings.")
@_flags()
def write(*, config: Config, file: Path | None, force: bool, despite_findings: bool, within: float) -> int:
    """Record this host into FILE, or print what would be in it.

    Only a complete and healthy host is recorded: every GPU of its PCI bus answers, every NVLink is up, and
    gpu-triage check has no critical finding.

    Exit code 0: recorded. 2: not recorded, since FILE exists, the host is not complete and healthy, or the file or
    the options cannot be used.
    """
    if file is not None and file.exists() and not force:
        raise BaselineError(f"{file}: exists; name another file, or replace it with --force")
    facts, _ = _observe(config, within, well=True)
    if not despite_findings:
        _refuse_findings(config)
    if file is None:
        click.echo(host_facts.encode(facts), nl=False)
        return 0
    host_facts.write_baseline(file, facts)
    click.echo(f"{file}: {facts.host.gpu_count} GPUs, driver {facts.host.driver_version}")
    return 0


@baseline_command.command("diff", cls=OptionsCommand)
@click.argument("file", type=Path)
@format_option(text="people", json="programs")
@_flags()
def diff(*, config: Config, file: Path, form: str, within: float) -> int:
    """Say what differs from the baseline in FILE, and what that means.

    Exit code 0: nothing. 1: something. 2: the file cannot be used, or the host cannot be checked.
    """
    recorded = host_facts.read_baseline(file)
    facts, lacks = _observe(config, within, well=False)
    found = changes(recorded.facts, facts)
    as_text = "\n".join(map(printable, _lines(recorded, lacks, found)))
    click.echo(_as_json(recorded, lacks, found) if form == "json" else as_text)
    return 1 if found else 0


@baseline_command.command("accept", cls=OptionsCommand)
@click.argument("file", required=False, type=Path)
@click.option(
    "--field",
    "fields",
    metavar="NAME",
    multiple=True,
    type=OneOf([*ACCEPTABLE, _ALL]),
    help=f"A field that was changed on purpose, as diff and the alert name it; repeatable. {_ALL}: whatever differs.",
)
@click.option("--despite-findings", is_flag=True, help="Accept the fields, also if check has critical findings.")
@_flags("baseline.file", "baseline.from-host", "state.directory")
def accept(*, config: Config, file: Path | None, fields: tuple[str, ...], despite_findings: bool, within: float) -> int:
    """Take fields that were changed on purpose over into the baseline, and keep the rest.

    FILE is by default the one that the exporter compares with (--baseline.file, or what --baseline.from-host learned
    in --state.directory); a running exporter reads it again. Like write, it refuses a host that is not complete and
    healthy. On many hosts, name the fields: what else differs on one of them is still reported.

    Exit code 0: the host is as in the baseline. 1: other fields still differ. 2: nothing was accepted, since no
    --field was given, the host is not complete and healthy, or the file or the options cannot be used.
    """
    learned = kept_apart(config).state_directory if config.baseline_from_host else None
    path = file or config.baseline_file or (learned and StateDirectory(learned).path(BASELINE))
    if path is None:
        raise BaselineError("name the baseline's FILE, or the exporter's configuration with --config.file")
    recorded = host_facts.read_baseline(path)
    facts, _ = _observe(config, within, well=True)
    if (found := changes(recorded.facts, facts)) and not fields:
        names = ", ".join(dict.fromkeys(each.field for each in found))
        what = f"{path}: differs in {names}; name with --field what was changed on purpose, or --field {_ALL}"
        raise BaselineError(what)
    merged = accepted(recorded.facts, facts, ACCEPTABLE if _ALL in fields else fields)
    left = changes(merged, facts)
    if len(left) < len(found):
        if not despite_findings:
            # As for write: the baseline that is about to change must not be what a finding is about.
            _refuse_findings(replace(config, baseline_file=None, baseline_from_host=False))
        host_facts.write_baseline(path, merged)
    remaining = {(each.field, _subject(each)) for each in left}
    # A line for each difference: pdsh and its like put the host's name before it.
    for each in sorted(found, key=lambda each: (each.field, _subject(each)) in remaining):
        word = "still different" if (each.field, _subject(each)) in remaining else "accepted"
        click.echo(printable(f"{word}: {_subject(each)}: {each.field}: {each.was} -> {each.now}"))
    if not found:
        click.echo(f"this host is as in the baseline of {host_facts.timestamp(recorded.facts.at)}")
    return 1 if left else 0


def _refuse_findings(config: Config) -> None:
    report = measure_configured(config, _CHECK_SECONDS).report
    # Includes pending ones: a short measurement confirms few, and a baseline is kept for years.
    critical = "; ".join(
        f"{each.check.code} {each.subject}, {each.measured}{(follows := life_cycle(each)) and f' ({follows})'}"
        for each in report.findings
        if each.severity is Severity.CRITICAL
    )
    if critical:
        raise BaselineError(
            f"no baseline of a host with critical findings: {critical}. Fix them first; see gpu-triage check. If this "
            "is how the host should be, record it with --despite-findings"
        )


def _observe(config: Config, within_seconds: float, *, well: bool) -> tuple[host_facts.HostFacts, str | None]:
    """The host's facts once all was read, or at the deadline, and what was missing then.

    With `well`, it raises BaselineError unless the host is complete and healthy by then.
    """
    configure("error", config.log_format)
    quick = Config(
        sample_fast_seconds=0.2,
        sample_medium_seconds=1.0,
        sample_deadline_seconds=config.sample_deadline_seconds,
        collectors={"xid": False},
    )
    facts: host_facts.HostFacts | None = None
    lacks: str | None = "the first answer of the driver"
    with ExitStack() as stack:
        machine = live_host(config, stack).machine

        def look(sampler: Sampler) -> bool:
            nonlocal facts, lacks
            facts, lacks = sampler.view.facts(machine.clock.now().wall), sampler.view.limitations(well=well)
            return lacks is None

        def progress(done: float) -> str:
            return f"reading the host, {done:.0f} of {within_seconds:.0f} s; missing: {lacks}"

        sources = host_facts.GPU_SOURCES, host_facts.HOST_SOURCES
        sample_for(within_seconds, machine, quick, progress, look, collectors=sources)
    if well and lacks is not None:
        raise BaselineError(f"no baseline of a host that lacks {lacks}; fix that first, then record it")
    if facts is None or facts.host.gpu_count is None:
        raise BaselineError(f"nothing to compare: this host lacks {lacks}; see gpu-triage check")
    return facts, lacks


def _lines(recorded: host_facts.Baseline, lacks: str | None, found: tuple[Comparison, ...]) -> Iterator[str]:
    since = f"the baseline of {host_facts.timestamp(recorded.facts.at)}"
    if lacks is not None:
        yield f"not all could be read: it lacks {lacks}"
    yield f"{len(found)} difference{'s' * (len(found) > 1)} from {since}" if found else f"this host is as in {since}"
    explained: set[str] = set()
    for subject, differences in groupby(found, _subject):
        yield from ("", subject)
        for change in differences:
            yield f"  {change.field}: {change.was} -> {change.now}"
            # Explain each meaning once: it is the same for every GPU.
            if (meaning := meaning_of(change)) not in explained:
                yield f"    {meaning}"
                explained.add(meaning)


def _subject(change: Comparison) -> str:
    if change.gpu is None:
        return "host"
    gpu = change.gpu.latest
    return f"GPU {gpu.pci_bus_id or 'without address'} {gpu.uuid} {gpu.name}".rstrip()


def _as_json(recorded: host_facts.Baseline, lacks: str | None, found: tuple[Comparison, ...]) -> str:
    document = {
        "format": "gpu-triage-baseline-diff",
        "version": 1,
        "equal": not found,
        "baseline": {"recorded": host_facts.timestamp(recorded.facts.at), "sha256": recorded.sha256},
        "lacks": lacks,
        "changes": [
            {
                "field": each.field,
                **({"uuid": each.gpu.latest.uuid, "pci_bus_id": each.gpu.latest.pci_bus_id} if each.gpu else {}),
                "was": each.was,
                "now": each.now,
                "meaning": meaning_of(each),
            }
            for each in found
        ],
    }
    return json.dumps(document, indent=2)


def meaning_of(change: Comparison) -> str:
    then, now = change.gpu or (None, None)
    if then and then.pcie and now and now.pcie and change.field.startswith("pcie_"):
        return _link_meaning(then.pcie, now.pcie, "width" if change.field == "pcie_width" else "generation")
    if change.field == BOARD and None in (then, now):
        return str(_MEANINGS["gone" if now is None else "added"])
    return str(_MEANINGS[change.field])


def _link_meaning(before: host_facts.LinkFacts, after: host_facts.LinkFacts, attribute: Attribute) -> str:
    (was, now), card, slot = (
        [getattr(link, f"{party}{attribute}") for link in (before, after)] for party in ("", "device_", "slot_")
    )
    factor = now / was if attribute == "width" else 2.0 ** (now - was)
    share = f"{factor:g} times" if factor >= 1 else f"1/{round(1 / factor)} of"
    sentences = [f"The link can carry {share} what it did."]
    for party, (then, since) in (("card", card), ("slot", slot)):
        if then != since:
            sentences.append(f"The {party} offers {_amount(since, attribute)} instead of {_amount(then, attribute)}.")
    if now < was:
        part = weaker_part(was, card[1], slot[1])
        if part is None:
            sentences.append("Neither card nor slot says why.")
        sentences.append(LINK_ADVICE.get((attribute, part), BY_CODE[f"pcie.{attribute}"].advice).anywhere)
    return " ".join(sentences)


def _amount(value: int | None, attribute: Attribute) -> str:
    if attribute == "generation":
        return "an unknown generation" if value is None else f"generation {value}"
    return "an unknown number of lanes" if value is None else f"{value} lane{'' if value == 1 else 's'}"
