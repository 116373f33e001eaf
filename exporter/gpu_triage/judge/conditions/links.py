"""Is the path to the GPU broken? PCIe links and their errors, peer access, NVLink."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from types import MappingProxyType
from typing import Final

from gpu_triage.judge.conditions.kernel import first_of
from gpu_triage.judge.evidence import thresholds
from gpu_triage.judge.evidence.faults import fabric_trouble, narrow_link, slow_link, works_awake
from gpu_triage.judge.evidence.gpu import GpuEvidence
from gpu_triage.judge.evidence.host import HostEvidence, length_of_time
from gpu_triage.judge.evidence.remember import Count, lately
from gpu_triage.judge.evidence.series import many
from gpu_triage.judge.findings.finding import Finding, of_gpu, of_host
from gpu_triage.judge.link_advice import LINK_ADVICE, Advice, Attribute, LinkCause, link_cause
from gpu_triage.read.gpu.c2c import GPU_C2C_LINKS, GPU_C2C_LINKS_UP
from gpu_triage.read.gpu.fabric import FABRIC_JOINED, GPU_FABRIC_STATE
from gpu_triage.read.gpu.nvlink import (
    GPU_NVLINK_ERRORS_TOTAL,
    GPU_NVLINK_LINK_ERRORS_TOTAL,
    GPU_NVLINK_UP,
)
from gpu_triage.read.gpu.nvlink_counters import RECOVERY, REPLAY
from gpu_triage.read.gpu.nvlink_quality import EFFECTIVE_BER_LIMIT, GPU_NVLINK_LINK_BIT_ERROR_RATIO
from gpu_triage.read.gpu.pcie import GPU_PCIE_LINK_GENERATION, GPU_PCIE_LINK_WIDTH, GPU_PCIE_REPLAYS_TOTAL
from gpu_triage.read.gpu.pcie_aer import GPU_PCIE_AER_ERRORS_TOTAL
from gpu_triage.read.gpu.pcie_limits import (
    GPU_PCIE_LINK_DEVICE_MAX_GENERATION,
    GPU_PCIE_LINK_DEVICE_MAX_WIDTH,
    GPU_PCIE_LINK_EXPECTED_GENERATION,
    GPU_PCIE_LINK_EXPECTED_WIDTH,
    GPU_PCIE_LINK_SLOT_MAX_GENERATION,
    GPU_PCIE_LINK_SLOT_MAX_WIDTH,
)
from gpu_triage.read.gpu.presence import GPU_P2P_EXPECTED
from gpu_triage.read.gpu.topology import GPU_P2P_STATUS
from gpu_triage.read.incidents.metrics import GPU_RESET_TIMESTAMP_SECONDS
from gpu_triage.read.metrics.metric import MetricSpec
from gpu_triage.read.xid.metrics import GPU_NVSWITCH_SXID_ERRORS_TOTAL, GPU_NVSWITCH_SXID_LAST_TIMESTAMP_SECONDS

_ENOUGH_PEERS: Final = 2
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
    """Yield findings about degraded PCIe links and their errors, slots worse than others, P2P, and NVLink."""
    for gpu in host.gpus:
        if gpu.up:
            yield from _pcie(gpu)
        replays = gpu.rose(GPU_PCIE_REPLAYS_TOTAL, gpu.limit("pcie.replays", "count"))
        if replays is not None:
            yield of_gpu("pcie.replays", gpu, f"{replays:.0f} replays {lately(gpu)}", value=replays)
        if errors := tuple(_aer_errors(gpu)):
            measured = ", ".join(
                f"{', '.join(f'{count:.0f} {what}' for count, what, _ in alike)} {lately(gpu, seconds)}"
                for seconds, alike in groupby(sorted(errors, key=itemgetter(2)), key=itemgetter(2))
            )
            yield of_gpu("pcie.aer", gpu, measured, value=sum(count for count, _, _ in errors))
    yield from _slots(host)
    yield from _p2p(host)
    yield from _nvlink(host)
    yield from _switches(host)


def _pcie(gpu: GpuEvidence) -> Iterator[Finding]:
    """Yield width and generation below expectation. A low generation when idle saves power and is not a finding."""
    narrow, slow, loaded = narrow_link(gpu), slow_link(gpu), gpu.recent.loaded
    slot = f", at {gpu.pci_bus_id}" if gpu.pci_bus_id else ""
    if narrow is not None:
        load = "under load" if loaded else "at rest" if gpu.busy_share is not None else "load unknown"
        code, width = "pcie.width" if loaded else "pcie.width_idle", gpu.last(GPU_PCIE_LINK_WIDTH)
        yield of_gpu(code, gpu, f"{narrow} {load}{slot}", _cause_advice(gpu, "width"), width)
    if slow is not None:
        advice, generation = _cause_advice(gpu, "generation"), gpu.last(GPU_PCIE_LINK_GENERATION)
        if loaded:
            yield of_gpu("pcie.generation", gpu, f"{slow} under load{slot}", advice, generation)
        elif works_awake(gpu):
            measured = f"{slow}, in a P-state of load and busy {gpu.busy_share or 0.0:.0%} of the time{slot}"
            yield of_gpu("pcie.generation_low", gpu, measured, advice, generation)
    yield from _link_changes(gpu, slot)


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


def _aer_errors(gpu: GpuEvidence) -> Iterator[tuple[float, str, float]]:
    """Yield link errors that matter: how many, which, and over how many seconds."""
    if not gpu.risen(GPU_PCIE_AER_ERRORS_TOTAL, thresholds.SEVERE_AER_SECONDS).amount:
        return
    for device in ("gpu", "port"):
        most = gpu.limit("pcie.aer", "count")
        correctable = gpu.rose(GPU_PCIE_AER_ERRORS_TOTAL, most, device=device, severity="correctable")
        if correctable is not None:
            yield correctable, f"correctable on the {device}", thresholds.EVENTS_REMEMBERED_SECONDS
        for severity in ("nonfatal", "fatal"):
            seconds = thresholds.SEVERE_AER_SECONDS
            errors = gpu.risen(GPU_PCIE_AER_ERRORS_TOTAL, seconds, device=device, severity=severity).amount
            if errors > 0:
                yield errors, f"{severity} on the {device}", seconds


def _slots(host: HostEvidence) -> Iterator[Finding]:
    """Yield GPUs with a slot slower than those of most GPUs of the same model."""
    links: dict[str, list[tuple[GpuEvidence, float, float]]] = defaultdict(list)
    for gpu in host.answering:
        generation, width = gpu.last(GPU_PCIE_LINK_EXPECTED_GENERATION), gpu.last(GPU_PCIE_LINK_EXPECTED_WIDTH)
        if gpu.name and generation is not None and width is not None:
            links[gpu.name].append((gpu, generation, width))
    for peers in links.values():
        if len(peers) <= _ENOUGH_PEERS:
            continue
        usual_generation = _usual(generation for _, generation, _ in peers)
        usual_width = _usual(width for _, _, width in peers)
        for gpu, generation, width in peers:
            if generation < usual_generation or width < usual_width:
                measured = (
                    f"generation {generation:.0f} and {width:.0f} lanes at most, "
                    f"its siblings {usual_generation:.0f} and {usual_width:.0f}"
                )
                yield of_gpu("pcie.below_peers", gpu, measured, value=width)


def _usual(values: Iterator[float]) -> float:
    """Return the most common value; the largest in case of a tie."""
    return max(Counter(values).items(), key=lambda item: (item[1], item[0]))[0]


def _p2p(host: HostEvidence) -> Iterator[Finding]:
    """Yield pairs of GPUs of one model without direct access.

    Access is expected if it is declared, if an equally close pair has it, and, for access disabled by an administrator,
    between GPUs with NVLink.
    """
    declared = host.last(GPU_P2P_EXPECTED)
    if declared == 0:
        return
    whole = {(gpu.gpu, gpu.uuid): gpu for gpu in host.answering if gpu.uuid and not gpu.partitioned}
    levels = host.topology_levels()
    paths = [
        (gpu, peer, labels["status"], (gpu.name, levels.get(frozenset((gpu.uuid, peer.uuid))), labels["capability"]))
        for capability in ("read", "write")
        for labels in host.labels_of(GPU_P2P_STATUS, capability=capability)
        if (gpu := whole.get((labels["gpu"], labels["uuid"]))) is not None
        and (peer := whole.get((labels["peer_gpu"], labels["peer_uuid"]))) is not None
        and gpu.name == peer.name
    ]
    linked = {gpu for gpu in whole.values() if gpu.has(GPU_NVLINK_UP)}
    able = {kind for _, _, status, kind in paths if status == "ok" and kind[1] is not None}
    refused: dict[GpuEvidence, dict[str, str]] = defaultdict(dict)
    for gpu, peer, status, kind in paths:
        forbidden = status == "disabled_by_regkey" and gpu in linked and peer in linked
        if status not in ("ok", "unknown") and (declared == 1 or kind in able or forbidden):
            refused[gpu][peer.gpu] = status
    for gpu, peers in refused.items():
        words = ", ".join(f"GPU {peer}: {status}" for peer, status in peers.items())
        yield of_gpu("p2p.unavailable", gpu, words, value=len(peers))


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
