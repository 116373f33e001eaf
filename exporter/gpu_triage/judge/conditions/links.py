"""Is the path to the GPU broken? PCIe links and their errors, shared uplinks of switches, NVLink and its switches."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from types import MappingProxyType
from typing import Final

from gpu_triage.judge.conditions.kernel import first_of
from gpu_triage.judge.evidence import thresholds
from gpu_triage.judge.evidence.faults import fabric_trouble, slow_link, works_awake
from gpu_triage.judge.evidence.gpu import GpuEvidence
from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.judge.evidence.missing_lanes import MissingLanes, Shortage, aer_errors, many_replays, missing_lanes
from gpu_triage.judge.evidence.remember import Count, lately
from gpu_triage.judge.evidence.series import many
from gpu_triage.judge.evidence.slots import full_uplink, short_uplinks
from gpu_triage.judge.evidence.wording import length_of_time, ranges
from gpu_triage.judge.findings.check import Advice
from gpu_triage.judge.findings.finding import Finding, of_gpu, of_host
from gpu_triage.judge.link_advice import LINK_ADVICE, Attribute, LinkCause, link_cause
from gpu_triage.read.gpu.fabric import FABRIC_JOINED, GPU_FABRIC_STATE
from gpu_triage.read.gpu.nvlink import (
    EFFECTIVE_BER_LIMIT,
    GPU_C2C_LINKS,
    GPU_C2C_LINKS_UP,
    GPU_NVLINK_ERRORS_TOTAL,
    GPU_NVLINK_LINK_BIT_ERROR_RATIO,
    GPU_NVLINK_LINK_ERRORS_TOTAL,
    GPU_NVLINK_UP,
    RECOVERY,
    REPLAY,
)
from gpu_triage.read.gpu.pcie import (
    GPU_PCIE_LINK_DEVICE_MAX_GENERATION,
    GPU_PCIE_LINK_DEVICE_MAX_WIDTH,
    GPU_PCIE_LINK_EXPECTED_GENERATION,
    GPU_PCIE_LINK_EXPECTED_WIDTH,
    GPU_PCIE_LINK_GENERATION,
    GPU_PCIE_LINK_SLOT_MAX_GENERATION,
    GPU_PCIE_LINK_SLOT_MAX_WIDTH,
    GPU_PCIE_LINK_WIDTH,
)
from gpu_triage.read.host.pcie_uplinks import devices_behind
from gpu_triage.read.incidents.incident_metrics import GPU_RESET_TIMESTAMP_SECONDS
from gpu_triage.read.metrics.metric import MetricSpec
from gpu_triage.read.xid.xid_metrics import GPU_NVSWITCH_SXID_ERRORS_TOTAL, GPU_NVSWITCH_SXID_LAST_TIMESTAMP_SECONDS

_LIMITS: Final[Mapping[Attribute, tuple[MetricSpec, MetricSpec, MetricSpec]]] = MappingProxyType(
    {
        "generation": (
            GPU_PCIE_LINK_EXPECTED_GENERATION,
            GPU_PCIE_LINK_DEVICE_MAX_GENERATION,
            GPU_PCIE_LINK_SLOT_MAX_GENERATION,
        ),
        "width": (GPU_PCIE_LINK_EXPECTED_WIDTH, GPU_PCIE_LINK_DEVICE_MAX_WIDTH, GPU_PCIE_LINK_SLOT_MAX_WIDTH),
    }
)
"""What is expected of a link, and the maximum of card and slot."""

_NVLINK_ERRORS: Final = (
    ("replay|recovery", "replays"),
    ("crc", "crc"),
)


def judge_links(host: HostEvidence) -> Iterator[Finding]:
    """Yield findings about degraded PCIe links and their errors, and about NVLink."""
    for gpu in host.gpus:
        if gpu.up:
            yield from _pcie(host, gpu)
        replays = many_replays(gpu)
        if replays is not None:
            yield of_gpu("pcie.replays", gpu, f"{replays:.0f} replays {lately(gpu)}", value=replays)
        if errors := tuple(aer_errors(gpu)):
            measured = ", ".join(
                f"{', '.join(f'{count:.0f} {what}' for count, what, _ in alike)} {lately(gpu, seconds)}"
                for seconds, alike in groupby(sorted(errors, key=itemgetter(2)), key=itemgetter(2))
            )
            yield of_gpu("pcie.aer", gpu, measured, value=sum(count for count, _, _ in errors))
    yield from _nvlink(host)
    yield from _switches(host)


def _pcie(host: HostEvidence, gpu: GpuEvidence) -> Iterator[Finding]:
    """Yield width and generation below expectation. A low generation when idle saves power and is not a finding."""
    missing, slow, loaded = missing_lanes(host, gpu), slow_link(gpu), gpu.recent.loaded
    slot = f", at {gpu.pci_bus_id}" if gpu.pci_bus_id else ""
    if missing is not None:
        yield _narrow(gpu, missing, slot)
    if slow is not None:
        advice, generation = _cause_advice(gpu, "generation"), gpu.last(GPU_PCIE_LINK_GENERATION)
        if loaded:
            yield of_gpu("pcie.generation", gpu, f"{slow} under load{slot}", advice, generation)
        elif works_awake(gpu):
            measured = f"{slow}, in a P-state of load and busy {gpu.busy_share or 0.0:.0%} of the time{slot}"
            yield of_gpu("pcie.generation_low", gpu, measured, advice, generation)
    yield from _link_changes(gpu, slot)


def _narrow(gpu: GpuEvidence, missing: MissingLanes, slot: str) -> Finding:
    """Return the finding about missing lanes: lost ones, or ones that the link has not had since boot."""
    loaded = gpu.recent.loaded
    load = "under load" if loaded else "at rest" if gpu.busy_share is not None else "load unknown"
    measured = f"{missing.text} {load}"
    if missing.kind is Shortage.LOST:
        code = "pcie.width" if loaded else "pcie.width_idle"
        return of_gpu(code, gpu, f"{measured}{slot}", _cause_advice(gpu, "width"), missing.lanes)
    if missing.kind is Shortage.BUILT:
        group = ranges(each.gpu for each in (gpu, *missing.siblings))
        return of_gpu("pcie.width_built", gpu, f"{measured}, as all of GPU {group} since boot", value=missing.lanes)
    return of_gpu("pcie.width_from_boot", gpu, f"{measured}, no more seen since boot{slot}", value=missing.lanes)


def _link_changes(gpu: GpuEvidence, slot: str) -> Iterator[Finding]:
    """Yield a link that changes repeatedly, or that changes its width under load even once."""
    changes = gpu.memory.over(gpu.key, Count.LINK_CHANGES, thresholds.EVENTS_REMEMBERED_SECONDS)
    flaps = many(changes, gpu.limit("pcie.flapping", "transitions"))
    if flaps is not None and gpu.under_load:
        yield of_gpu("pcie.flapping", gpu, f"{flaps:.0f} changes {lately(gpu)}", value=flaps)
    widths = gpu.memory.over(gpu.key, Count.WIDTH_CHANGES, thresholds.WIDTH_CHANGES_SECONDS).amount
    width, expected = gpu.last(GPU_PCIE_LINK_WIDTH), gpu.last(GPU_PCIE_LINK_EXPECTED_WIDTH)
    # A single change that left the link too narrow soon gets its own finding.
    is_narrow = width is not None and expected is not None and width < expected
    if widths > 1 or (widths and not is_narrow):
        times = "once" if widths == 1 else f"{widths:.0f} times"
        measured = f"its width changed under load {times} {lately(gpu, thresholds.WIDTH_CHANGES_SECONDS)}{slot}"
        yield of_gpu("pcie.width_changes", gpu, measured, value=widths)


def _cause_advice(gpu: GpuEvidence, attribute: Attribute) -> Advice | None:
    """Return advice about a card or slot that cannot provide what is expected; None if both can."""
    expected, card, slot = (gpu.last(spec) for spec in _LIMITS[attribute])
    cause = link_cause(expected, card, slot)
    return None if cause is LinkCause.LINK else LINK_ADVICE[attribute, cause]


def _nvlink(host: HostEvidence) -> Iterator[Finding]:
    """Yield links that are down, and rising error counters.

    If no link of the host is up, this has been so since boot and the links should be up. The exception is an incomplete
    fabric, which is then at fault itself. MIG disables links, and so does a virtual machine with a single GPU.
    """
    in_use = any(link.high for link in host.series(GPU_NVLINK_UP))
    linked = [gpu for gpu in host.answering if gpu.has(GPU_NVLINK_UP) and not gpu.partitioned]
    for gpu in host.answering:
        down = [link.labels["link"] for link in gpu.series(GPU_NVLINK_UP) if link.high == 0]
        due = gpu in linked and len(linked) > 1 and gpu.last(GPU_FABRIC_STATE) in (None, FABRIC_JOINED)
        if down and (in_use or due):
            yield of_gpu("nvlink.down", gpu, f"down: link {', '.join(down)}", value=len(down))
        downs = gpu.memory.over(gpu.key, Count.NVLINK_DOWNS, thresholds.NVLINK_FLAPS_SECONDS)
        if downs.amount >= gpu.limit("nvlink.flapping", "downs"):
            measured = f"links went down {downs.amount:.0f} times in {length_of_time(downs.seconds)}"
            yield of_gpu("nvlink.flapping", gpu, measured, value=downs.amount)
        rose = [
            (kinds, gpu.rose(GPU_NVLINK_ERRORS_TOTAL, gpu.limit("nvlink.errors", name), type=kinds))
            for kinds, name in _NVLINK_ERRORS
        ]
        errors = [(count, kinds.replace("|", " and ")) for kinds, count in rose if count is not None]
        if errors:
            words = ", ".join(f"{count:.0f} {kinds}" for count, kinds in errors)
            total = sum(count for count, _ in errors)
            yield of_gpu("nvlink.errors", gpu, f"{words} errors {lately(gpu)}", value=total)
        yield from _quality(gpu)
        yield from _c2c(gpu)


def _quality(gpu: GpuEvidence) -> Iterator[Finding]:
    """Yield NVLink 5 links (which count no replays) that recover repeatedly, and links with a high bit error rate.

    On 320 GB200 GPUs all counters were 0, except the recoveries of one link: 3 more in 21 minutes, and five days later
    it failed (github.com/marin-community/marin, issue 9086).
    """
    if not gpu.has(GPU_NVLINK_ERRORS_TOTAL, type=REPLAY):
        found = [
            (gpu.memory.rise(GPU_NVLINK_LINK_ERRORS_TOTAL, link.values, thresholds.RECOVERIES_SECONDS), link)
            for link in gpu.series(GPU_NVLINK_LINK_ERRORS_TOTAL, type=RECOVERY)
        ]
        again = [(rise, link) for rise, link in found if rise.amount >= gpu.limit("nvlink.recovering", "count")]
        if again:
            words = ", ".join(f"link {link.labels['link']} recovered {rise.amount:.0f} times" for rise, link in again)
            longest = max(rise.seconds for rise, _ in again)
            most = max(rise.amount for rise, _ in again)
            yield of_gpu("nvlink.recovering", gpu, f"{words} in {length_of_time(longest)}", value=most)
    high = [
        f"link {link.labels['link']}: {link.last:.0e}"
        for link in gpu.series(GPU_NVLINK_LINK_BIT_ERROR_RATIO, kind="effective")
        if link.low > EFFECTIVE_BER_LIMIT
    ]
    if high:
        yield of_gpu("nvlink.bit_errors", gpu, f"effective bit error rate of {', '.join(high)}")


def _c2c(gpu: GpuEvidence) -> Iterator[Finding]:
    """Yield links to the module's CPU that are down."""
    links, links_up = gpu.last(GPU_C2C_LINKS), gpu.recent.one(GPU_C2C_LINKS_UP)
    if links is not None and links_up is not None and links_up.high < links:
        yield of_gpu("c2c.down", gpu, f"{links_up.last:.0f} of {links:.0f} links are up", value=links - links_up.last)


def _switches(host: HostEvidence) -> Iterator[Finding]:
    """Yield SXids of NVSwitches, one finding per severity. Resetting the GPUs also resets the switches."""
    reset_at = max((each.last for each in host.series(GPU_RESET_TIMESTAMP_SECONDS)), default=0.0)
    damaged = any(fabric_trouble(gpu) is not None for gpu in host.answering)
    open_seconds = thresholds.XID_DAMAGE_SECONDS if damaged else thresholds.XID_OPEN_SECONDS
    found: dict[str, list[str]] = defaultdict(list)
    for last in host.series(GPU_NVSWITCH_SXID_LAST_TIMESTAMP_SECONDS):
        fatal = last.labels["fatal"] == "true"
        age_seconds = host.age_seconds(last.last)
        if age_seconds > (open_seconds if fatal else thresholds.XID_RECENT_SECONDS) or last.last < reset_at:
            continue
        count = host.last(GPU_NVSWITCH_SXID_ERRORS_TOTAL, **last.labels) or 1
        times = "" if count == 1 else f", {count:.0f} times since the kernel log begins"
        word = "fatal" if fatal else "nonfatal"
        found["nvswitch.sxid_fatal" if fatal else "nvswitch.sxid"].append(
            f"SXid {last.labels['sxid']} ({word}) of the switch at {last.labels['pci_bus_id']}, "
            f"last {host.when(last.last)}{times}"
        )
    for code, seen in found.items():
        yield of_host(code, first_of(seen), len(seen))


def judge_uplinks(host: HostEvidence) -> Iterator[Finding]:
    """Yield one finding for all uplinks slower than both ends allow, the slowest first."""
    short = sorted((share, _words(host, labels)) for share, labels in short_uplinks(host))
    if short:
        yield of_host("pcie.uplink", first_of([words for _, words in short]), short[0][0])


def _words(host: HostEvidence, labels: Mapping[str, str]) -> str:
    gpus = {gpu.pci_bus_id: f"GPU {gpu.gpu}" for gpu in host.gpus}
    shared = ", ".join(gpus.get(bus_id, f"{kind} {bus_id}") for bus_id, kind in devices_behind(labels).items())
    is_, best = (f"x{labels[f'{of}width']} PCIe {labels[f'{of}generation']}" for of in ("", "expected_"))
    full = full_uplink(host, labels)
    traffic = f"; {full}" if full else ""
    return f"switch {labels['bridge']} below port {labels['port']}: {is_} of {best}; behind it: {shared}{traffic}"
