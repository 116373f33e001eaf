"""Is the GPU present and healthy? Driver, count, lost GPUs, Xids, memory errors, fabric, and faults that came back."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import product
from typing import Final, NamedTuple

from gpu_triage.judge.bottleneck.classes import Bottlenecks
from gpu_triage.judge.conditions.host import first_of
from gpu_triage.judge.evidence import thresholds
from gpu_triage.judge.evidence.gpu import GpuEvidence, is_critical
from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.judge.evidence.observed import READS
from gpu_triage.judge.evidence.past import DAY_SECONDS
from gpu_triage.judge.evidence.series import Evidence, Series
from gpu_triage.judge.evidence.wording import first_few, length_of_time, ranges
from gpu_triage.judge.findings.finding import AboutGpu, Finding, identity_of, of_gpu, of_host, of_slot
from gpu_triage.judge.findings.table import BY_CODE, Severity, xid_check
from gpu_triage.read.exporter.exporter_health import DRIVER, GPU_EXPORTER_CALL_INFLIGHT_SECONDS
from gpu_triage.read.gpu import ecc, fabric, modes, nvlink, presence
from gpu_triage.read.host.platform import GPU_KERNEL_MODULE_LOADED
from gpu_triage.read.host.services import FABRIC_MANAGER, GPU_HOST_SERVICE_RUNNING
from gpu_triage.read.incidents.incident_metrics import GPU_INCIDENT_BOARDS_RECENT, GPU_INCIDENTS_RECENT
from gpu_triage.read.xid import xid_metrics
from gpu_triage.read.xid.codes import DOUBLE_BIT_ERROR, SLOW_GSP, SLOW_GSP_TIMES
from gpu_triage.sampler.driver import STALLED
from gpu_triage.sampler.host_gpus import BLOCKED_BEHIND

_CONFIGURED: Final = fabric.GPU_FABRIC_CONFIGURATION.value_of("nothing")
_NO_PARTITION: Final = fabric.GPU_FABRIC_CONFIGURATION.value_of("no partition")  # normal for a GPU that is not in use
_OF_PROGRAMS: Final = "GpuXidApplication"  # the alert on Xids caused by programs
_CUDA_MODULE: Final = "nvidia_uvm"
_GONE: Final = frozenset({"lost", "reset_required", "insufficient_power"})  # errors of GPUs that run no job
_FELL: Final = "xid.79"
_RECOVERY: Final = "154"  # the Xid of a changed recovery action
_OF_SEVERAL_XIDS: Final = frozenset({"xid.unlisted", "xid.nonfatal", "xid.earlier"})
_FATAL: Final = {"": "", "true": " (fatal)", "false": " (nonfatal)"}
_FLAGS: Final = {
    "memory.row_remap_failure": "row remapping has failed",
    "memory.unrepairable": "the driver reports memory that it cannot repair",
    "memory.row_remap_pending": "rows wait to be remapped",
    "memory.retired_pages_pending": "pages wait to be retired",
    "ecc.sram_threshold": "the driver reports that the threshold is exceeded",
}
"""Measured text by finding, which exists while the metric that it READS is nonzero."""


def judge_health(host: HostEvidence, bottlenecks: Bottlenecks) -> Iterator[Finding]:
    """Yield findings about the driver, missing and unresponsive GPUs, and faults of the others, also old ones."""
    yield from _presence(host)
    xids = tuple(_xids(host, bottlenecks))
    yield from xids
    yield from _board(host, xids)
    yield from _repeat_offenders(host)
    for gpu in host.answering:
        yield from (of_gpu(code, gpu, measured) for code, measured in _FLAGS.items() if gpu.last(READS[code]))
        if parts := [each.labels["part"] for each in gpu.series(ecc.GPU_REPAIR_PENDING) if each.last]:
            named = " and ".join(ecc.REPAIRED_PARTS[part] for part in parts)
            yield of_gpu("memory.repair_pending", gpu, f"{named} waits to be repaired", detail=named)
        yield from _ecc(gpu)
        if action := gpu.recovery_action:
            wanted = modes.GPU_RECOVERY_ACTION.states.get(action, f"action {action}")
            code = "recovery.drain_and_reset" if action == modes.DRAIN_AND_RESET else "recovery.action"
            yield of_gpu(code, gpu, f"the driver asks for: {wanted}", detail=wanted)
    troubles = {gpu.gpu: trouble for gpu in host.answering if (trouble := gpu.fabric_trouble) is not None}
    if troubles:
        first = next(iter(troubles.values()))
        measured, detail = f"GPU {', '.join(troubles)}: {first}", f"GPU {ranges(troubles)} ({first})"
        yield of_host("fabric.unhealthy", measured, len(troubles), detail)
    for gpu in host.answering:
        if gpu.gpu not in troubles and (faults := _fabric_faults(gpu)):
            yield of_gpu("fabric.degraded", gpu, f"the driver reports: {', '.join(faults)}", detail=", ".join(faults))
    # The last part of the window is long enough to restart the service.
    for service in host.recent.series(GPU_HOST_SERVICE_RUNNING, service=FABRIC_MANAGER):
        if service.high == 0:
            yield of_host("fabric.service_down", f"{FABRIC_MANAGER} does not run")


def _fabric_faults(gpu: GpuEvidence) -> list[str]:
    """Return what the driver reports as wrong with the GPU's part of the NVSwitch fabric."""
    faults = [each.labels["fault"].replace("_", " ") for each in gpu.series(fabric.GPU_FABRIC_FAULT) if each.last]
    configuration = int(gpu.last(fabric.GPU_FABRIC_CONFIGURATION) or _CONFIGURED)
    if configuration not in (_CONFIGURED, _NO_PARTITION):
        faults.append(f"configuration: {fabric.GPU_FABRIC_CONFIGURATION.states.get(configuration, configuration)}")
    return faults


def _presence(host: HostEvidence) -> Iterator[Finding]:
    if host.released:
        yield of_host("gpu.released", "NVML is shut down on request")
        return
    if host.driver_error is not None and host.last(presence.GPU_DEVICES, source="pci") != 0:
        hangs = ""
        if call := host.one(GPU_EXPORTER_CALL_INFLIGHT_SECONDS, gpu="", collector=DRIVER):
            hangs = f" ({call.labels['function'] or 'sysfs'} has not returned for {call.last:.0f} s)"
        detail = host.driver_error.replace("_", " ")
        yield of_host("driver.unavailable", f"the driver does not answer: {host.driver_error}{hangs}", detail=detail)
        if not host.answering:
            return
    else:
        yield from _missing(host)
    yield from (_silent(host, gpu) for gpu in host.gpus if gpu.lost)
    if host.gpus and host.last(GPU_KERNEL_MODULE_LOADED, module=_CUDA_MODULE) == 0:
        yield of_host("driver.module_missing", f"{_CUDA_MODULE} is not in /proc/modules")


def _silent(host: HostEvidence, gpu: GpuEvidence) -> Finding:
    """Return the finding for a GPU that does not respond: lost, or blocked by another GPU, or slowed by errors."""
    if gpu.error == BLOCKED_BEHIND:
        stalled = [each for each in host.gpus if each.lost and each.error == STALLED]
        first = max(stalled, key=lambda each: each.silent_seconds or 0.0, default=None)
        behind = "behind another GPU" if first is None else f"behind GPU {first.gpu}, which {first.no_answer}"
        return of_gpu("gpu.blocked", gpu, f"blocked {behind}", detail="" if first is None else f"GPU {first.gpu}")
    storm, silent = _corrected_storm(gpu), gpu.silent_seconds
    if storm is not None and gpu.error == STALLED and (silent or 0.0) <= gpu.limit("gpu.slow", "seconds"):
        return of_gpu("gpu.slow", gpu, f"{storm:.0f} corrected errors a second; {gpu.no_answer}", value=storm)
    return of_gpu("gpu.lost", gpu, gpu.no_answer, detail=gpu.error.replace("_", " "))


def _corrected_storm(gpu: GpuEvidence) -> float | None:
    """Return corrected memory errors per second while the GPU last responded, if enough to slow the driver; else None.

    On a GB200 with 17,700 per second, calls took more than 45 s under load and returned at once without it
    (github.com/NVIDIA/DCGM, issue 313).
    """
    labels = (gpu.gpu, gpu.uuid, "corrected")
    rate = gpu.memory.rise(ecc.GPU_ECC_VOLATILE_ERRORS_TOTAL, labels, thresholds.WINDOW_SECONDS).mean
    return rate if rate >= gpu.limit("gpu.slow", "corrected_per_second") else None


def _missing(host: HostEvidence) -> Iterator[Finding]:
    """Yield a finding if there are fewer GPUs than there should be."""
    if host.missing_gpus > 0:
        shown = host.last(presence.GPU_DEVICES, source="nvml") or 0
        more = " and ".join(f"{count:.0f} {words}" for words, count in host.wanted_gpus.items() if shown < count)
        known = sorted(gpu.pci_bus_id for gpu in host.gpus if not gpu.up and gpu.pci_bus_id)
        which = f", {first_few(known, 3)}" if known else ""
        detail = f"{host.missing_gpus:.0f} of {shown + host.missing_gpus:.0f} missing{which}"
        measured = f"the driver shows {shown:.0f} GPUs, {more}{which}"
        missing = of_host("gpu.missing", measured, host.missing_gpus, detail)
        yield replace(missing, settling=host.is_starting)


class _Xid(NamedTuple):
    """One sort of Xid of a GPU, with what is measured of it."""

    is_critical: bool
    last: float  # when it last happened
    number: float
    measured: str
    name: str  # as "Xid 79"


def _xids(host: HostEvidence, bottlenecks: Bottlenecks) -> Iterator[Finding]:
    """Yield recent Xids, and earlier critical ones; of files, all. Several of one code are one finding."""
    found: dict[tuple[str, GpuEvidence | str], list[_Xid]] = defaultdict(list)
    for gpu in host.gpus:
        for unit in gpu.series(xid_metrics.GPU_XID_SUSPECT_UNIT_PROCESSES):
            measured = f"{unit.last:.0f} processes failed at {unit.labels['unit']}"
            yield of_gpu("xid.same_unit", gpu, measured, value=unit.last, detail=unit.labels["unit"])
        xids = gpu.series(xid_metrics.GPU_XID_LAST_TIMESTAMP_SECONDS)
        if not xids:
            continue
        damaged = host.driver_error is not None or _is_damaged(gpu) or bottlenecks[gpu].name == "hung"
        checks = {last: xid_check(last.labels["xid"], last.labels["fatal"]) for last in xids}
        recent = [_recent_count(gpu, last) for last, check in checks.items() if check.alert == _OF_PROGRAMS]
        # Until all is observed, it is the kernel log's count for a single code.
        of_programs = sum(recent) if gpu.memory.seconds >= thresholds.XID_RECENT_SECONDS else max(recent, default=0.0)
        for last in xids:
            xid, fatal = last.labels["xid"], last.labels["fatal"]
            if _is_reported_elsewhere(xid, gpu, host):
                continue
            count = gpu.last(xid_metrics.GPU_XID_ERRORS_TOTAL, xid=xid, fatal=fatal) or 1
            harmless = xid == str(SLOW_GSP) and _recent_count(gpu, last) < SLOW_GSP_TIMES
            code, one = _xid(last, count, host, damaged=damaged, reset=last.last < gpu.reset_at, harmless=harmless)
            if code and not _are_few(code, of_programs, host):
                found[code, gpu].append(one)
    answering = {gpu.pci_bus_id for gpu in host.answering}
    for last in host.series(xid_metrics.GPU_XID_UNASSIGNED_LAST_TIMESTAMP_SECONDS):
        slot = last.labels["pci_bus_id"]
        count = host.last(xid_metrics.GPU_XID_UNASSIGNED_ERRORS_TOTAL, **last.labels) or 1
        code, one = _xid(last, count, host, damaged=slot not in answering, reset=slot in answering)
        if code and not _are_few(code, count, host):
            found[code, slot].append(one)
    for (code, about), each in found.items():
        measured = first_of([one.measured for one in sorted(each, key=lambda one: (not one.is_critical, -one.last))])
        number = sum(one.number for one in each)
        detail = first_few(sorted({one.name for one in each}), 3) if code in _OF_SEVERAL_XIDS else ""
        finding = of_host(code, measured, number, detail)
        yield replace(finding, pci_bus_id=about) if isinstance(about, str) else finding.about(about)


def _is_reported_elsewhere(xid: str, gpu: GpuEvidence, host: HostEvidence) -> bool:
    if xid == str(DOUBLE_BIT_ERROR):
        # Xid 94 reports the same error, including what it means for the jobs.
        return gpu.contained_error
    # What the driver requests now outranks an Xid: it may have withdrawn that since.
    return xid == _RECOVERY and host.ended is None and gpu.last(modes.GPU_RECOVERY_ACTION) is not None


def _recent_count(gpu: GpuEvidence, last: Series) -> float:
    """Return how many Xids of one sort came in the last minutes, at most."""
    seconds = thresholds.XID_RECENT_SECONDS
    if gpu.age_seconds(last.last) > seconds:
        return 0.0
    if gpu.memory.seconds >= seconds:
        return gpu.risen(xid_metrics.GPU_XID_ERRORS_TOTAL, seconds, **last.labels).amount
    return gpu.last(xid_metrics.GPU_XID_ERRORS_TOTAL, **last.labels) or 1


def _are_few(code: str, count: float, host: HostEvidence) -> bool:
    """Whether these Xids concern only the programs that caused them; in files, all count."""
    return host.ended is None and BY_CODE[code].alert == _OF_PROGRAMS and count <= host.limit(code, "count")


def _is_damaged(gpu: GpuEvidence) -> bool:
    """Whether the GPU still shows damage from a critical Xid."""
    return bool(
        not gpu.up
        or gpu.recovery_action
        or any(gpu.last(READS[code]) for code in _FLAGS if code.startswith("memory."))
        or (gpu.uncorrected_errors and not gpu.contained_error)
        or gpu.fabric_trouble
        or (not gpu.partitioned and 0 in gpu.lasts(nvlink.GPU_NVLINK_UP))
    )


def _xid(
    last: Series, count: float, host: HostEvidence, *, damaged: bool, reset: bool, harmless: bool = False
) -> tuple[str, _Xid]:
    """Return the finding code for an Xid ("" for none) and what is measured; `harmless`: too few in a row to matter."""
    xid, fatal = last.labels["xid"], last.labels["fatal"]
    age_seconds = host.age_seconds(last.last)
    times = "" if count == 1 else f", {count:.0f} times since the kernel log begins"
    check, critical = xid_check(xid, fatal), is_critical(xid, fatal)
    if harmless and not damaged and host.ended is None:
        # Not in files, which do not show what came next: the timeout after which all went well is never pasted.
        check, critical = BY_CODE["xid.gsp_slow"], False
    measured = f"Xid {xid}{_FATAL[fatal]}, last {host.when(last.last)}{times}"
    each = _Xid(critical, last.last, count, measured, f"Xid {xid}")
    if check.severity is Severity.INFO:
        return "" if host.ended is None and age_seconds > thresholds.XID_RECENT_SECONDS else check.code, each
    open_seconds = thresholds.XID_DAMAGE_SECONDS if damaged else thresholds.XID_OPEN_SECONDS
    if host.ended is not None:
        # A file is not followed by others: nothing but a load of the driver, or a GPU that works, shows a recovery.
        reset |= last.last in host.ended
        open_seconds = float("inf") if damaged else open_seconds
    if not reset and age_seconds <= open_seconds:
        return check.code, each
    return "xid.earlier" if critical or host.ended is not None else "", each


def _ecc(gpu: GpuEvidence) -> Iterator[Finding]:
    if uncorrected := gpu.uncorrected_errors:
        code = "ecc.contained" if gpu.contained_error else "ecc.uncorrected"
        in_chip = gpu.last(ecc.GPU_ECC_MEMORY_ERRORS_TOTAL, severity="uncorrected", memory="sram")
        where = f", {in_chip:.0f} of them in the chip (SRAM)" if in_chip else ""
        measured = f"{uncorrected:.0f} uncorrected errors since the driver was loaded{where}"
        yield of_gpu(code, gpu, measured, value=uncorrected)
    corrected = gpu.one(ecc.GPU_ECC_VOLATILE_ERRORS_TOTAL, severity="corrected")
    if corrected is not None and corrected.increase > 0:
        count = corrected.increase
        yield of_gpu("ecc.corrected", gpu, f"{count:.0f} corrected errors in {corrected.seconds:.0f} s", value=count)
    a_day = gpu.risen(ecc.GPU_ECC_VOLATILE_ERRORS_TOTAL, DAY_SECONDS, severity="corrected")
    if a_day.amount > gpu.limit("ecc.corrected_rising", "a_day"):
        measured = f"{a_day.amount:.0f} corrected errors in {length_of_time(a_day.seconds)}"
        yield of_gpu("ecc.corrected_rising", gpu, measured, value=a_day.amount)
    mode, pending = gpu.last(ecc.GPU_ECC_MODE), gpu.last(ecc.GPU_ECC_MODE_PENDING)
    if mode is not None and pending is not None and mode != pending:
        on = {False: "off", True: "on"}
        yield of_gpu("ecc.mode_pending", gpu, f"ECC is {on[bool(mode)]} and will be {on[bool(pending)]}")


_DAYS: Final = ((30, "in_30_days"), (7, "in_7_days"))
_NEVER_ALONE: Final = "reset"  # a reset is a response to a fault, not a fault itself
_CODE: Final = "gpu.repeat_offender"
_NAMES: Final = {"lost": "GPU lost", "uncorrected": "uncorrected memory errors"}


def kind_in_words(kind: str) -> str:
    """Return the display name of an incident kind (label of gpu_incidents_recent)."""
    return _NAMES.get(kind, f"Xid {kind}")


class Repetition(NamedTuple):
    """A kind of incident that came back."""

    kind: str  # label value of gpu_incidents_recent
    by: str  # the suspect: ``board`` or ``slot``
    times: int
    description: str


def repetitions(evidence: Evidence, **labels: str) -> tuple[Repetition, ...]:
    """Return the incident kinds that came back on a GPU or in its slot, most frequent first.

    `evidence` is that of the GPU, or of its host with the `labels` of a slot.
    """
    recent = evidence.series(GPU_INCIDENTS_RECENT, **labels)
    counts = {(t.labels["kind"], t.labels["by"], int(t.labels["days"])): int(t.last) for t in recent}
    boards = {t.labels["kind"]: int(t.last) for t in evidence.series(GPU_INCIDENT_BOARDS_RECENT, **labels)}
    found = []
    for kind in dict.fromkeys(kind for kind, _, _ in counts if kind != _NEVER_ALONE):
        several = boards.get(kind, 0) > 1
        # If different boards fail the same way in one slot, suspect the slot, whatever else the board did.
        for by, (days, limit) in product(("slot", "board") if several else ("board", "slot"), _DAYS):
            times = counts.get((kind, by, days), 0)
            if times >= evidence.limit(_CODE, limit):
                elsewhere = times - counts.get((kind, "slot", days), 0)
                if by == "slot":
                    where = "in this slot" + (f", on {boards[kind]} different boards" if several else "")
                else:
                    where = "on this board" + (f", {elsewhere} of them in another slot" if elsewhere > 0 else "")
                words = f"{kind_in_words(kind)}, {times} times in {days} days {where}"
                found.append(Repetition(kind, by, times, words))
                break
    return tuple(sorted(found, key=lambda each: -each.times))


def slots_without_gpu(host: HostEvidence) -> Mapping[str, tuple[Repetition, ...]]:
    """Return the same for slots with a GPU that the driver does not show, by PCI bus ID."""
    slots = dict.fromkeys(labels["pci_bus_id"] for labels in host.labels_of(GPU_INCIDENTS_RECENT, gpu="", uuid=""))
    return {slot: repetitions(host, gpu="", uuid="", pci_bus_id=slot) for slot in slots}


def _board(host: HostEvidence, xids: Iterable[Finding]) -> Iterator[Finding]:
    """Yield one finding for several GPUs that are lost, by the driver or the kernel log.

    With all of them gone, the driver often fails, or the first one's call blocks the others: only the log reports it.
    One that hangs, may not be opened, or went to a virtual machine does not count.
    """
    answering = {gpu.pci_bus_id for gpu in host.answering}
    gone = (gpu for gpu in host.gpus if gpu.lost and gpu.error in _GONE)
    fell = (host.silent_gpus.of(xid) or xid for xid in xids if xid.check.code == _FELL)
    about: tuple[AboutGpu, ...] = (*gone, *fell)
    lost = {identity_of(each): each for each in about if each.pci_bus_id not in answering}
    if len(lost) >= thresholds.LOST_TOGETHER:
        names = sorted(each.pci_bus_id if each.gpu is None else f"GPU {each.gpu}" for each in lost.values())
        yield of_host("gpu.board_lost", f"lost: {', '.join(names)}", len(lost), first_few(names, 8))


def _repeat_offenders(host: HostEvidence) -> Iterator[Finding]:
    """Yield one finding per GPU, or slot without one, with incidents that came back."""
    for gpu in host.gpus:
        if came_back := repetitions(gpu):
            yield of_gpu(_CODE, gpu, _described(came_back), value=came_back[0].times, detail=came_back[0].description)
    for slot, came_back in slots_without_gpu(host).items():
        if came_back:
            yield of_slot(_CODE, slot, _described(came_back), came_back[0].times, came_back[0].description)


def _described(came_back: Sequence[Repetition]) -> str:
    return f"{'; '.join(each.description for each in came_back)}: suspect the {came_back[0].by}"
