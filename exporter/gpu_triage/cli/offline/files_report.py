"""The offline report: reads files, judges their content, and lists what they lack."""

import re
import secrets
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Final

from gpu_triage.cli.measure import judge_recording
from gpu_triage.cli.offline.evidence import FilesOfHost, evidence_of
from gpu_triage.cli.offline.lines import pieces
from gpu_triage.cli.offline.log_lines import date_time, written
from gpu_triage.cli.offline.logged import logged_findings
from gpu_triage.cli.offline.logs import OF_DRIVER, EventKind, LogReading, merge
from gpu_triage.cli.offline.lspci import ports_of
from gpu_triage.cli.offline.scan import BUG_REPORT, Content, HostFacts, Scanner
from gpu_triage.cli.offline.smi_links import ALL_LINKS
from gpu_triage.cli.offline.snapshot import Snapshot, snapshots
from gpu_triage.cli.offline.sources import STANDARD_INPUT, InputFile, documents, is_recording, sources
from gpu_triage.documents.stream import TimeLimit
from gpu_triage.errors import ConfigError
from gpu_triage.judge.conditions.host import first_of
from gpu_triage.judge.evidence import thresholds
from gpu_triage.judge.evidence.gpu import AT_THAT_MOMENT
from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.judge.evidence.wording import first_few, ranges
from gpu_triage.judge.findings.settings import judge_settings
from gpu_triage.judge.findings.table import Area
from gpu_triage.judge.findings.verdicts import Verdict, verdict_on
from gpu_triage.judge.host_judge import HostJudge
from gpu_triage.judge.report.report import AreaVerdict, FileRead, GpuVerdict, JudgedHost, Report
from gpu_triage.options.config import Config
from gpu_triage.options.progress import ProgressLine
from gpu_triage.read.gpu import ecc, power
from gpu_triage.read.gpu.activity import GPU_SM_UTILIZATION_RATIO
from gpu_triage.read.gpu.modes import GPU_MEMORY_OS_MANAGED, GPU_PERSISTENCE_MODE, GPU_RECOVERY_ACTION
from gpu_triage.read.gpu.nvlink import CRC, GPU_NVLINK_UP
from gpu_triage.read.gpu.pcie import GPU_PCIE_LINK_GENERATION, GPU_PCIE_LINK_SLOT_MAX_WIDTH, GPU_PCIE_LINK_WIDTH
from gpu_triage.read.gpu.throttle import GPU_THROTTLE_ACTIVE, UNKNOWN
from gpu_triage.read.gpu.topology import GPU_P2P_STATUS
from gpu_triage.read.processes.on_gpu import GPU_PROCESS_INFO, GPU_PROCESSES, ProcessReading
from gpu_triage.record.masking import Masker

_PROCESS: Final = re.compile(r"[^\s,;]{1,80} \((\d{1,9})\)")  # A process as findings name it: name and PID


def redacted(report: Report) -> Report:
    """Without names, UUIDs and addresses replaced consistently; those on the PCI bus stay: findings refer to them."""
    masker = Masker(secrets.token_bytes(16))

    def plain(text: str) -> str:
        return _PROCESS.sub(r"process (\1)", masker.text(text))

    def of_area(area: AreaVerdict) -> AreaVerdict:
        found = (replace(each, measured=plain(each.measured), uuid=plain(each.uuid)) for each in area.findings)
        return replace(area, summary=area.summary and plain(area.summary), findings=tuple(found))

    def of_gpu(gpu: GpuVerdict) -> GpuVerdict:
        because = gpu.bottleneck._replace(because=plain(gpu.bottleneck.because))
        return replace(gpu, uuid=plain(gpu.uuid), bottleneck=because)

    return replace(
        report,
        host="a host",
        recording=None if report.recording is None else "a recording",
        areas=tuple(map(of_area, report.areas)),
        gpus=tuple(map(of_gpu, report.gpus)),
        not_read=tuple(map(plain, report.not_read)),
        files=tuple(replace(file, name=f"file {place}") for place, file in enumerate(report.files, start=1)),
    )


RECORDING: Final = "recording of gpu-triage"
_MOST_LINES: Final = 12
_MOST_FAILED: Final = 4


def _unread(contents: Iterable[Content], files: FilesOfHost) -> Iterator[str]:
    """One line for each thing that nvidia-smi printed or omitted, or the kernel logged, and that isn't judged."""
    yield from _unjudged(files)
    headless = "rows of nvidia-smi --query-gpu without headings: leave out noheader, or attach the command too"
    yield from (f"{headless}: {content.without_headings}" for content in contents if content.without_headings)
    last = files.last
    if (count := last.attached or 0) > len(last.gpus):
        yield f"{count - len(last.gpus)} of {count} GPUs that nvidia-smi counts: attach its whole output"
    for key, at in last.carried.items():
        since = "an earlier output" if at is None else written(at)
        yield f"GPU {files.index(key)} in the last output, which does not show all GPUs: it is judged as of {since}"
    for key, gpu in last.gpus.items():
        if gpu.failed:
            what = ", ".join(path.rpartition("/")[2] for path in gpu.failed[:_MOST_FAILED])
            yield f"what the driver could not read of GPU {files.index(key)}: {what}"
    yield from _unknown_forms(last, files)


def _unknown_forms(last: Snapshot, files: FilesOfHost) -> Iterator[str]:
    lines: dict[str, list[str]] = defaultdict(list)
    for key, gpu in last.gpus.items():
        for line in gpu.unread:
            lines[line].append(f"GPU {files.index(key)}")
    for line in last.unread:
        lines[line].append("nvidia-smi")
    for line, of in islice(lines.items(), _MOST_LINES):
        yield f"a line in an unknown form ({', '.join(Counter(of))}): {line}"
    if len(lines) > _MOST_LINES:
        yield f"{len(lines) - _MOST_LINES} more lines in an unknown form"


def _unjudged(files: FilesOfHost) -> Iterator[str]:
    """Kernel lines with words of error; without names, only their number, since they may hold some."""
    lines = files.log.unjudged
    shown = lines[:_MOST_UNJUDGED] if files.with_names else ()
    for text, count in shown:
        yield f"a kernel line with words of error{f', {count} times' if count > 1 else ''}: {text}"
    if rest := len(lines) - len(shown):
        yield f"{rest} {'more ' if shown else ''}sort{'s' * (rest > 1)} of kernel lines with words of error"


_MOST_UNJUDGED: Final = 6
_MOST_LINKS: Final = 8
_VERSION: Final = re.compile(r" {1,3}(\d{3}\.\d{1,3}(?:\.\d{1,3})?) ")


def _summaries(area: Area, files: FilesOfHost, *, found: bool) -> Iterator[str]:
    """Summaries of an area from logs and lspci, where nvidia-smi has none; `found`: whether it has findings."""
    match area:
        case Area.DRIVER:
            yield from _on_the_bus(files)
        case Area.HEALTH if files.log.lines:
            yield _xids(files.log)
        case Area.PCIE:
            listed = (device for device in files.facts.devices.values() if device.is_gpu and not device.is_dead)
            yield _link_counts("by lspci: ", ((device.generation, device.width) for device in listed))
        case Area.WORK:
            nodes = {key: gpu.numa_node for key, gpu in files.last.gpus.items()}
            known = (f"GPU {files.index(key)} on NUMA node {node}" for key, node in nodes.items() if node is not None)
            yield ", ".join(known)
        case Area.HOST if files.log.lines and not found:
            yield _host_events(files.log)


def _on_the_bus(files: FilesOfHost) -> Iterator[str]:
    shown = Counter(gpu.identity.name for gpu in files.last.gpus.values() if gpu.identity.name)
    yield ", ".join(f"nvidia-smi shows {count} x {name}" for name, count in shown.items())
    yield f"driver {files.last.driver} answers" if files.last.driver else ""
    gpus = [device for device in files.facts.devices.values() if device.is_gpu]
    if on_bus := Counter(each.model + (each.driver and f" (driver in use: {each.driver})") for each in gpus):
        yield f"on the bus: {', '.join(f'{count} x {gpu}' for gpu, count in on_bus.items())}"
    load = files.log.last_load
    loaded = None if load is None else _VERSION.search(load.text)
    if version := files.facts.driver_version or (loaded and loaded[1]):
        yield f"kernel module {version}"


def _xids(log: LogReading) -> str:
    codes = sorted({what.code for what, _ in log.of_kind(EventKind.XID) if what.code}, key=int)
    found = f"Xid errors {', '.join(codes)}" if codes else "no Xid errors"
    return f"{found} in {_lines(log)}"


def _host_events(log: LogReading) -> str:
    """Events of the host that are not findings, because they are over, old or corrected."""
    said = [
        f"{what.code.replace('_', ' ')} {log.count_and_last(events)}" for what, events in log.of_kind(EventKind.HOST)
    ]
    said += [f"killed process {log.when(events.last)}" for _, events in log.of_kind(EventKind.OUT_OF_MEMORY)]
    none = "no killed or hung processes, storage or hardware errors"
    return f"{f'earlier: {first_of(said)};' if said else none} in {_lines(log)}"


def _link_counts(begins: str, links: Iterable[tuple[float | None, float | None]]) -> str:
    """PCIe links, from their generations and widths; "" if none is known."""
    known = [f"gen {gen:.0f} x{width:.0f}" for gen, width in links if gen is not None and width is not None]
    return f"{begins}{_counts(known)}" if known else ""


def _lines(log: LogReading) -> str:
    return f"{log.lines} line{'s' * (log.lines != 1)} of log"


def _counts(found: Iterable[str]) -> str:
    return ", ".join(f"{count} x {each}" for each, count in sorted(Counter(found).items()))


_NOT_FOUND: Final = (
    "none of these files holds what gpu-triage reads: output of nvidia-smi (-q, -q -x, the table, --query-gpu as CSV, "
    "dmon, pmon, topo -m, nvlink), nvidia-bug-report.log, a kernel log with messages about GPUs (dmesg, journalctl -k, "
    "kern.log), lspci -vvv, or of what measures a host (mpstat, iostat, sar, vmstat, free, numactl, ps)"
)
_JUDGED_BY: Final = {
    Area.HEALTH: (ecc.GPU_ECC_VOLATILE_ERRORS_TOTAL, ecc.GPU_ECC_MODE, ecc.GPU_REMAPPED_ROWS, GPU_RECOVERY_ACTION),
    Area.PCIE: (GPU_PCIE_LINK_WIDTH,),
    Area.PEERS: (GPU_NVLINK_UP,),
    Area.WORK: (GPU_PROCESSES, GPU_SM_UTILIZATION_RATIO),
    Area.SETTINGS: (GPU_PERSISTENCE_MODE,),
}
"""What an area is judged by: one of them is enough to judge it."""
_MOST_READ: Final = 2000
_MOST_NAMED: Final = 12
"""How many files the report lists by name; in a folder, files with recognized content come first."""


def check_files(paths: Sequence[str], config: Config, *, redact: bool = False) -> Report:
    """The report on the host these files came from; raises ConfigError if one can't be read, or if there are two hosts.

    `paths` are files, folders and archives; ``-`` is standard input. `redact`: as `redacted`.
    """
    report = _check(paths, config, with_names=not redact)
    return redacted(report) if redact else report


def _check(paths: Sequence[str], config: Config, *, with_names: bool) -> Report:
    if recordings := [path for path in paths if path != STANDARD_INPUT and is_recording(Path(path))]:
        if len(paths) > 1:
            raise ConfigError(f"--from: {recordings[0]}: is a recording, which says all that files do; give it alone")
        report = judge_recording(replace(config, replay=Path(paths[0])))
        return replace(report, files=(FileRead(paths[0], (RECORDING,), written(report.judged_at), ""),))
    named = [source for path in paths for source in sources(path)]
    if not named:
        raise ConfigError("--from: there is no file in this folder that can be read; name the files")
    facts = HostFacts()
    contents = _read(named, facts)
    read, labels = snapshots(contents, facts, with_names=with_names)
    files = FilesOfHost(
        facts=facts,
        snapshots=read,
        labels=labels,
        ports=ports_of(facts.devices),
        log=_log(contents, read, named),
        config=config,
        with_names=with_names,
    )
    evidence = evidence_of(files)
    judge = HostJudge(JudgedHost("files", files=True), settings=judge_settings(config.judge))
    found = (*logged_findings(files, judge.settings), *facts.tools.findings())
    report = judge.judge(evidence, files.driver_error, found).report
    return _completed(report, evidence, files, contents)


def _read(named: Sequence[InputFile], facts: HostFacts) -> list[Content]:
    total = sum(source.about.st_size for source in named if source.about)
    contents: list[Content] = []
    time_limit, read, done = TimeLimit(), 0, 0
    with ProgressLine() as line:

        def count(size: int) -> None:
            nonlocal done
            done += size
            line.show(f"reading, {done / 1e6:.0f}{f' of {total / 1e6:.0f}' if total else ''} MB")

        for source in named:
            try:
                for document in documents(source, count, time_limit):
                    read += 1
                    if read > _MOST_READ:
                        contents.append(Content(source.name, f"only the first {_MOST_READ} files were read"))
                        return contents
                    content = Scanner(document.name, facts).read(pieces(document.stream))
                    content.damage = document.stream.damage
                    # In folders and archives, files without recognized content aren't listed.
                    if content.kinds or content.damage or len(contents) <= _MOST_NAMED:
                        contents.append(content)
            except OSError as error:
                raise ConfigError(f"--from: {source.name}: cannot be read: {error.strerror or error}") from error
    return contents


def _log(contents: Sequence[Content], read: Sequence[Snapshot], named: Sequence[InputFile]) -> LogReading:
    """All kernel logs, and the time that ages refer to."""
    modified_at = max((source.about.st_mtime for source in named if source.about), default=time.time())
    times = [each.written_at for each in contents] + [each.at for each in read]
    # When the newest of the files was collected, according to timestamps inside the files.
    collected_at = max((each for each in times if each is not None), default=None)
    sections = [section for content in contents for section in content.logs]
    if len(hosts := {host for section in sections for host in section.hosts}) > 1:
        names = first_few(sorted(hosts), _MOST_FAILED)
        raise ConfigError(f"--from: the kernel messages are of different hosts: {names}; check one host at a time")
    return merge(sections, collected_at, modified_at)


def _completed(report: Report, host: HostEvidence, files: FilesOfHost, contents: Sequence[Content]) -> Report:
    """The report with the files read and the data missing from them; an area without data never counts as healthy."""
    facts: dict[Area, list[str]] = defaultdict(list)
    nodes = {gpu.gpu: node for gpu in host.gpus if (node := gpu.node) is not None}
    pids = {labels["pid"] for labels in host.labels_of(GPU_PROCESS_INFO)}
    for area, fact in files.facts.tools.facts(nodes, pids, with_names=files.with_names):
        facts[area].append(fact)
    areas = tuple(_area(area, host, files, facts[area.area]) for area in report.areas)
    is_judged = any(area.findings or (area.is_known and area.summary is not None) for area in areas)
    shows_all = len(host.gpus) >= (files.last.attached or 0)
    nothing = not any(content.kinds for content in contents)
    blocked = report.blocked
    if files.driver_error is None:
        # There is no live driver to ask, so only an error printed by nvidia-smi itself blocks the verdict.
        blocked = _NOT_FOUND if nothing else None
        if files.facts.no_devices and not (files.last.gpus or any(area.findings for area in areas)):
            blocked = "nvidia-smi found no device; set --expect.gpu-count 0 if that is right"
    severities = [finding.urgency for area in areas for finding in area.findings]
    times = [each.at for each in files.snapshots if each.at is not None]
    return replace(
        report,
        areas=areas,
        blocked=blocked,
        verdict=verdict_on(severities, was_read=blocked is None and host.was_read and is_judged and shows_all),
        gpus=report.gpus if is_judged else tuple(replace(gpu, verdict=Verdict.NOT_READ) for gpu in report.gpus),
        not_read=(*(() if nothing else _missing_evidence(host, files)), *_unread(contents, files)),
        files=tuple(_file(each) for each in _named(contents)),
        measured_seconds=times[-1] - times[0] if len(times) == len(files.snapshots) > 1 else 0.0,
    )


def _area(area: AreaVerdict, host: HostEvidence, files: FilesOfHost, facts: Sequence[str]) -> AreaVerdict:
    # Without GPUs, the summary for a live host only lists what was not found.
    # With GPUs on the bus, or counted, that are not shown, it would claim that there are no others.
    on_bus = sum(device.is_gpu for device in files.facts.devices.values())
    counted = files.last.attached if files.snapshots else 0
    lacks = area.area is Area.DRIVER and (counted is None or len(host.gpus) < max(1, on_bus, counted))
    says = _covers(area.area, host, files) and not lacks
    known = says and area.summary is not None
    parts = [area.summary or ""] if known else [*_summaries(area.area, files, found=bool(area.findings))]
    # For partial nvidia-smi output, such as `-d ECC`, this is all there is.
    parts += _OF_THE_MOMENT[area.area](host, files) if area.area in _OF_THE_MOMENT else ()
    lines = files.log.unjudged if area.area is Area.HEALTH else ()
    doubts = any(text.startswith(OF_DRIVER) for text, _ in lines)
    parts += ["it has messages of the driver that are not judged"] if doubts else ()
    # A log does not show that the memory is sound. Without a bridge, inactive links are normal.
    doubts |= area.area is Area.HEALTH and not any(map(host.series, _JUDGED_BY[Area.HEALTH]))
    shown = files.last.gpus.values() if area.area is Area.PEERS else ()
    doubts |= lacks or any(ALL_LINKS in gpu.links for gpu in shown)
    # It may be slow for a reason that the files lack.
    doubts |= area.area is Area.HOST and files.facts.tools.tables.waiting_cpus > 0
    doubts |= area.area is Area.CLOCKS and bool(_below_clock(host))
    summary = "; ".join(filter(None, (*parts, *facts))) or None
    return replace(area, summary=summary, is_known=area.is_known and not doubts)


def _held(host: HostEvidence, _files: FilesOfHost) -> Iterator[str]:
    """Active throttle reasons of each GPU at the last sample; a duration would take two samples."""
    reasons = {gpu.gpu: active for gpu in host.answering if (active := gpu.active_reasons) is not None}
    if reasons and not any(reasons.values()):
        yield f"no throttle reason active {AT_THAT_MOMENT}"
    for gpu, active in reasons.items():
        if active:
            named = (f"a reason that the driver calls {each}" if each == UNKNOWN else each for each in active)
            yield f"GPU {gpu} held by {', '.join(named)} {AT_THAT_MOMENT}"
    yield from _below_clock(host)
    targets = host.series(power.GPU_CLOCK_TARGET_HERTZ)
    if clocks := sorted({f"{each.labels['clock']} {each.last / 1e6:.0f} MHz" for each in targets}):
        yield f"applications clocks: {', '.join(clocks)}"


def _below_clock(host: HostEvidence) -> list[str]:
    """The GPUs at their power limit that are below their highest clock, if no output shows which reason holds it."""
    found = []
    for gpu in host.answering if not host.has(GPU_THROTTLE_ACTIVE) else ():
        clock, most = (gpu.last(spec, clock="sm") for spec in (power.GPU_CLOCK_HERTZ, power.GPU_CLOCK_MAX_HERTZ))
        drawn, heat = gpu.over(0.0).power_share or 0.0, gpu.last(power.GPU_TEMPERATURE_CELSIUS, sensor="gpu")
        if clock and most and clock < _NEAR_CLOCK_RATIO * most and drawn >= thresholds.NEAR_LIMIT_SHARE:
            at = f"{clock / 1e6:.0f} of {most / 1e6:.0f} MHz" + ("" if heat is None else f", at {heat:.0f} °C")
            found.append(f"GPU {gpu.gpu} below its clock: {at} and {drawn:.0%} of its power limit")
    return found


def _errors(host: HostEvidence, files: FilesOfHost) -> Iterator[str]:
    series = {
        severity: host.series(ecc.GPU_ECC_VOLATILE_ERRORS_TOTAL, severity=severity) for severity in ecc.SEVERITIES
    }
    counted = {severity: sum(each.last for each in found) for severity, found in series.items() if found}
    if not host.was_read and (modes := host.lasts(ecc.GPU_ECC_MODE)):
        yield f"ECC on for {modes.count(1)} of {len(modes)}"
    if not host.was_read and (rows := host.lasts(ecc.GPU_REMAPPED_ROWS)):
        yield f"{sum(rows):.0f} remapped rows"
    if counted:
        yield f"ECC errors since the driver was loaded: {_by_kind(counted)}"
    lifetime = defaultdict[str, list[str]](list)
    for key, gpu in (*files.last.gpus.items(), *(("", gpu) for gpu in files.last.unnamed)):
        for reading in gpu.readings:
            if isinstance(reading, ecc.EccReading) and any(reading.aggregate_errors.values()):
                lifetime[_by_kind(reading.aggregate_errors)].append(files.index(key))
    yield from (f"over the lifetime of GPU {ranges(gpus)}: {counts}" for counts, gpus in lifetime.items())


def _by_kind(counted: Mapping[str, float]) -> str:
    return ", ".join(f"{count:.0f} {kind}" for kind, count in counted.items())


def _working(_host: HostEvidence, files: FilesOfHost) -> Iterator[str]:
    for key, gpu in files.last.gpus.items():
        if used := sorted((each for each in gpu.processes.processes if each.is_compute), key=lambda each: each.pid):
            yield f"GPU {files.index(key)}: {first_few(list(map(_use_of, used)), _MOST_FAILED)}"
        shares, watts = [share for share, _ in gpu.watched], [w for _, w in gpu.watched if w is not None]
        if shares and max(shares) - min(shares) >= _DIPS_SHARE:
            drew = f", {min(watts):.0f} to {max(watts):.0f} W" if watts else ""
            yield (
                f"GPU {files.index(key)} works and waits in turn: {min(shares):.0%} to {max(shares):.0%} busy{drew} in "
                f"{len(shares)} samples"
            )


def _use_of(process: ProcessReading) -> str:
    name, share = "process" if process.facts is None else process.facts.name, process.sm_utilization_ratio
    return f"{name} ({process.pid})" + ("" if share is None else f" at {share:.0%} of the SMs")


def _links(host: HostEvidence, _files: FilesOfHost) -> Iterator[str]:
    links = ((gpu.last(GPU_PCIE_LINK_GENERATION), gpu.last(GPU_PCIE_LINK_WIDTH)) for gpu in host.answering)
    yield _link_counts("now ", links)


def _peers(_host: HostEvidence, files: FilesOfHost) -> Iterator[str]:
    gpus = {files.index(key): gpu for key, gpu in files.last.gpus.items()}
    # Each pair counts once.
    nearer = ((own, *pair) for own, gpu in gpus.items() if own.isdecimal() for pair in gpu.peers.items())
    if levels := [level for own, peer, level in nearer if int(own) < int(peer)]:
        yield f"topology: {_counts(levels)}"
    if near := [level for gpu in gpus.values() for level in gpu.adapters.values()]:
        yield f"GPU to adapter: {_counts(near)}"
    if ways := [" ".join(way) for gpu in gpus.values() for peer in gpu.p2p.values() for way in peer.items()]:
        yield f"peer access: {_counts(ways)}"
    if inactive := [index for index, gpu in gpus.items() if ALL_LINKS in gpu.links]:
        yield f"all NVLinks of GPU {ranges(inactive)} are inactive"
    counted = {
        f"GPU {index} link {number}": {"CRC" if kind == CRC else kind: n for kind, n in link.errors.items() if n}
        for index, gpu in gpus.items()
        for number, link in gpu.links.items()
        if link.errors
    }
    if counted:
        faulty = [f"{link}: {_by_kind(errors)}" for link, errors in counted.items() if errors]
        more = f"; {len(faulty) - _MOST_LINKS} more links" if len(faulty) > _MOST_LINKS else ""
        yield f"NVLink errors since the driver was loaded: {'; '.join(faulty[:_MOST_LINKS]) or 'none'}{more}"


_NEAR_CLOCK_RATIO: Final = 0.9  # boost clocks vary by less
_DIPS_SHARE: Final = 0.3  # of the time: more than the samples of a busy GPU differ by
_OF_THE_MOMENT: Final = {
    Area.HEALTH: _errors,
    Area.CLOCKS: _held,
    Area.PCIE: _links,
    Area.PEERS: _peers,
    Area.WORK: _working,
}
"""Point-in-time details of an area, added to the summary that a live host gets."""


def _covers(area: Area, host: HostEvidence, files: FilesOfHost) -> bool:
    if area is Area.HEALTH and files.log.lines:
        return True
    if area is Area.PEERS and files.last.attached == len(host.answering) == 1:
        return True  # it has no peers
    return area not in _JUDGED_BY or any(host.series(spec) for spec in _JUDGED_BY[area])


def _missing_evidence(host: HostEvidence, files: FilesOfHost) -> Iterator[str]:
    """What these files don't contain, each with the file or command that would."""
    if not files.snapshots:
        yield "temperatures, power, ECC, PCIe link, processes: attach nvidia-smi -q"
    elif len(files.snapshots) == 1:
        yield "rates, such as the share of time it throttled: attach a second nvidia-smi -q, taken a minute later"
    if files.snapshots:
        yield "how long a GPU was busy, so whether a job hangs, starves or spins: run gpu-triage check on the host"
    if not files.log.lines:
        yield "Xid errors: attach the kernel log (dmesg -T, journalctl -k) or nvidia-bug-report.log.gz"
    if host.answering and not host.series(GPU_PCIE_LINK_SLOT_MAX_WIDTH):
        yield "what the slot above each GPU can do: attach lspci -vvv, taken as root"
    if len(host.answering) > 1:
        if not any(gpu.links for each in files.snapshots for gpu in each.gpus.values()):
            yield "whether NVLinks are up: attach nvidia-smi nvlink --status"
        if not host.has(GPU_P2P_STATUS):
            yield "P2P between GPUs: attach nvidia-smi topo -p2p r"
    yield from _unexplained(host)
    yield from files.facts.tools.missing()


def _unexplained(host: HostEvidence) -> Iterator[str]:
    if not all(gpu.memory_is_held or gpu.has(GPU_MEMORY_OS_MANAGED) for gpu in host.answering):
        yield "whether used GPU memory includes the page cache: attach nvidia-smi topo -m"
    if _below_clock(host):
        yield "what holds the clocks below their highest: attach nvidia-smi -q -d PERFORMANCE,TEMPERATURE"
    held = any("sw_power_cap" in (gpu.active_reasons or ()) for gpu in host.answering)
    if held and not host.has(power.GPU_POWER_DEFAULT_LIMIT_WATTS):
        yield "whether a power limit was lowered: attach nvidia-smi -q -d POWER"


def _named(contents: Sequence[Content]) -> Sequence[Content]:
    """The files to list: if there are many, only those with recognized content."""
    if len(contents) <= _MOST_NAMED:
        return contents
    telling = [content for content in contents if content.kinds or content.damage]
    first, others = telling[: 4 * _MOST_NAMED], telling[4 * _MOST_NAMED :]
    return [*first, *[each for each in others if each.damage][-_MOST_NAMED:]] or contents[:_MOST_NAMED]


def _file(content: Content) -> FileRead:
    kinds = (BUG_REPORT, *content.kinds) if content.is_bug_report else content.kinds
    found = [at for report in content.reports if (at := date_time(report.timestamp)) is not None]
    at = content.written_at if content.written_at is not None else max(found, default=None)
    disorder = dict.fromkeys(log.disorder for log in content.logs if log.disorder)
    note = ", ".join(filter(None, (content.damage or ("" if content.lines else "empty"), *disorder)))
    return FileRead(content.name, kinds, "" if at is None else written(at), note)
