"""Is the path to the GPU, or from GPU to GPU, broken or slow? PCIe links, slots, uplinks, peer access and NVLink."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, Literal, NamedTuple

from gpu_triage.judge.conditions.host import first_of
from gpu_triage.judge.evidence import pcie_paths, thresholds
from gpu_triage.judge.evidence.gpu import GpuEvidence
from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.judge.evidence.owners import owners_of
from gpu_triage.judge.evidence.remember import Count, lately
from gpu_triage.judge.evidence.series import many, sum_of
from gpu_triage.judge.evidence.wording import first_few, length_of_time, ranges
from gpu_triage.judge.findings.finding import Finding, of_gpu, of_host
from gpu_triage.judge.findings.table import Advice, advice_on
from gpu_triage.read.gpu import nvlink, pcie
from gpu_triage.read.gpu.fabric import FABRIC_JOINED, GPU_FABRIC_STATE
from gpu_triage.read.gpu.presence import GPU_P2P_EXPECTED
from gpu_triage.read.gpu.topology import GPU_P2P_STATUS
from gpu_triage.read.host.pcie_uplinks import devices_behind
from gpu_triage.read.metrics.metric import MetricSpec
from gpu_triage.read.xid import xid_metrics

Attribute = Literal["generation", "width"]
Part = Literal["card", "slot"]

_LIMITS: Final[Mapping[Attribute, tuple[MetricSpec, MetricSpec, MetricSpec]]] = {
    "generation": (
        pcie.GPU_PCIE_LINK_EXPECTED_GENERATION,
        pcie.GPU_PCIE_LINK_DEVICE_MAX_GENERATION,
        pcie.GPU_PCIE_LINK_SLOT_MAX_GENERATION,
    ),
    "width": (
        pcie.GPU_PCIE_LINK_EXPECTED_WIDTH,
        pcie.GPU_PCIE_LINK_DEVICE_MAX_WIDTH,
        pcie.GPU_PCIE_LINK_SLOT_MAX_WIDTH,
    ),
}
"""What is expected of a link, and the maximum of card and slot."""

_SAME_CARD: Final = (
    "Reseating does not help: if it is the same card as before, it is damaged, so {drain} the host and replace it; if "
    "it is another one, record the baseline again or correct the --expect option."
)
_BANDWIDTH: Final = "transfers to and from the GPU have a fraction of their bandwidth."

LINK_ADVICE: Final[Mapping[tuple[Attribute, Part | None], Advice]] = {
    ("width", "card"): advice_on(f"The card offers fewer lanes than this link should have: {_BANDWIDTH}", _SAME_CARD),
    ("width", "slot"): advice_on(
        f"The slot offers fewer lanes than this link should have: {_BANDWIDTH}",
        "Reseating does not help: {drain} the host, then move the card to a slot with enough lanes, change the "
        "riser or correct how the BIOS splits the lanes.",
    ),
    ("generation", "card"): advice_on(
        "The card offers a lower PCIe generation than this link should reach.", _SAME_CARD
    ),
    ("generation", "slot"): advice_on(
        "The slot offers a lower PCIe generation than this link should reach.",
        "Reseating does not help: {drain} the host, then look for a BIOS setting that limits the slot, and try "
        "another riser or slot.",
    ),
}
"""None for other causes, on which the finding itself has advice."""

_NVLINK_ERRORS: Final = (((nvlink.REPLAY, nvlink.RECOVERY), "replays"), (("crc",), "crc"))
"""Types of NVLink errors that count together, and the name of their limit."""


def judge_links(host: HostEvidence) -> Iterator[Finding]:
    """Yield findings about PCIe links and their errors, about uplinks and slots, and about NVLink and peer access."""
    for gpu in host.gpus:
        if gpu.up:
            yield from _pcie(host, gpu)
        replays = pcie_paths.many_replays(gpu)
        if replays is not None:
            yield of_gpu("pcie.replays", gpu, f"{replays:.0f} replays {lately(gpu)}", value=replays)
        if errors := pcie_paths.aer_errors(gpu):
            measured = ", ".join(
                f"{', '.join(f'{count:.0f} {what}' for what, count in alike.items())} {lately(gpu, seconds)}"
                for seconds, alike in errors.items()
            )
            yield of_gpu("pcie.aer", gpu, measured, value=sum(sum(alike.values()) for alike in errors.values()))
    yield from _nvlink(host)
    yield from _switches(host)
    yield from _uplinks(host)
    yield from _peers(host)


def _pcie(host: HostEvidence, gpu: GpuEvidence) -> Iterator[Finding]:
    """Yield width and generation below expectation. A low generation when idle saves power and is not a finding."""
    missing, slow, loaded = host.missing_lanes.get(gpu), gpu.slow_link, gpu.recent.loaded
    slot = f", at {gpu.pci_bus_id}" if gpu.pci_bus_id else ""
    if missing is not None:
        yield _narrow(gpu, missing, slot)
    if slow is not None and (loaded or gpu.works_awake):
        code, when = "pcie.generation", " under load"
        if not loaded:
            busy = f"busy {gpu.busy_share or 0.0:.0%} of the time"
            code, when = "pcie.generation_low", f", in a P-state of load and {busy}"
        advice, generation = _cause_advice(gpu, "generation"), gpu.last(pcie.GPU_PCIE_LINK_GENERATION)
        yield of_gpu(code, gpu, f"PCIe generation {slow}{when}{slot}", advice, generation, detail=slow)
    yield from _link_changes(gpu, slot)


def _narrow(gpu: GpuEvidence, missing: pcie_paths.MissingLanes, slot: str) -> Finding:
    """Return the finding about missing lanes: lost ones, or ones that the link has not had since boot."""
    loaded = gpu.recent.loaded
    load = "under load" if loaded else "at rest" if gpu.busy_share is not None else "load unknown"
    measured, detail = f"{missing.text} {load}", f"x{missing.lanes:.0f} of x{missing.expected:.0f}"
    if missing.kind is pcie_paths.Shortage.LOST:
        code = "pcie.width" if loaded else "pcie.width_idle"
        return of_gpu(code, gpu, f"{measured}{slot}", _cause_advice(gpu, "width"), missing.lanes, detail=detail)
    if missing.kind is pcie_paths.Shortage.BUILT:
        group = ranges(each.gpu for each in (gpu, *missing.siblings))
        code, more = "pcie.width_built", f"as all of GPU {group} since boot"
    else:
        code, more = "pcie.width_from_boot", f"no more seen since boot{slot}"
    return of_gpu(code, gpu, f"{measured}, {more}", value=missing.lanes, detail=detail)


def _link_changes(gpu: GpuEvidence, slot: str) -> Iterator[Finding]:
    """Yield a link that is trained again and again, or that changes its width under load even once."""
    retrainings = gpu.memory.over(gpu.key, Count.RETRAININGS, thresholds.EVENTS_REMEMBERED_SECONDS)
    flaps = many(retrainings, gpu.limit("pcie.flapping", "retrainings"))
    if flaps is not None and gpu.under_load:
        yield of_gpu("pcie.flapping", gpu, f"trained again {flaps:.0f} times {lately(gpu)}", value=flaps)
    widths = gpu.memory.over(gpu.key, Count.WIDTH_CHANGES, thresholds.WIDTH_CHANGES_SECONDS).amount
    width, expected = gpu.last(pcie.GPU_PCIE_LINK_WIDTH), gpu.last(pcie.GPU_PCIE_LINK_EXPECTED_WIDTH)
    # A single change that left the link too narrow soon gets its own finding.
    is_narrow = width is not None and expected is not None and width < expected
    if widths > 1 or (widths and not is_narrow):
        times = "once" if widths == 1 else f"{widths:.0f} times"
        measured = f"its width changed under load {times} {lately(gpu, thresholds.WIDTH_CHANGES_SECONDS)}{slot}"
        yield of_gpu("pcie.width_changes", gpu, measured, value=widths)


def _cause_advice(gpu: GpuEvidence, attribute: Attribute) -> Advice | None:
    """Return advice about a card or slot that cannot provide what is expected; None if both can."""
    expected, card, slot = (gpu.last(spec) for spec in _LIMITS[attribute])
    return LINK_ADVICE.get((attribute, weaker_part(expected, card, slot)))


def weaker_part(expected: float | None, card: float | None, slot: float | None) -> Part | None:
    """Return which part limits a link below its `expected` capability; None if both support it, or do not report it.

    >>> weaker_part(16, card=16, slot=8)
    'slot'
    """
    if expected is not None and card is not None and card < expected:
        return "card"
    return "slot" if expected is not None and slot is not None and slot < expected else None


def _nvlink(host: HostEvidence) -> Iterator[Finding]:
    """Yield links that are down, and rising error counters.

    If no link of the host is up, this has been so since boot and the links should be up. The exception is an incomplete
    fabric, which is then at fault itself. MIG disables links, and so does a virtual machine with a single GPU.
    """
    links_of = {gpu: gpu.series(nvlink.GPU_NVLINK_UP) for gpu in host.answering}
    in_use = any(link.high for links in links_of.values() for link in links)
    linked = [gpu for gpu, links in links_of.items() if links and not gpu.partitioned]
    for gpu, links in links_of.items():
        down = [link.labels["link"] for link in links if link.high == 0]
        due = gpu in linked and len(linked) > 1 and gpu.last(GPU_FABRIC_STATE) in (None, FABRIC_JOINED)
        if down and (in_use or due):
            detail = f"link {ranges(down)}"
            yield of_gpu("nvlink.down", gpu, f"down: link {', '.join(down)}", value=len(down), detail=detail)
        downs = gpu.memory.over(gpu.key, Count.NVLINK_DOWNS, thresholds.NVLINK_FLAPS_SECONDS)
        if downs.amount >= gpu.limit("nvlink.flapping", "downs"):
            measured = f"links went down {downs.amount:.0f} times in {length_of_time(downs.seconds)}"
            yield of_gpu("nvlink.flapping", gpu, measured, value=downs.amount)
        rises = gpu.rises(nvlink.GPU_NVLINK_ERRORS_TOTAL, thresholds.EVENTS_REMEMBERED_SECONDS, "type")
        rose = (
            (many(sum_of(rises[kind] for kind in kinds if kind in rises), gpu.limit("nvlink.errors", name)), kinds)
            for kinds, name in _NVLINK_ERRORS
        )
        if errors := [(count, kinds) for count, kinds in rose if count is not None]:
            words = ", ".join(f"{count:.0f} {' and '.join(kinds)}" for count, kinds in errors)
            total = sum(count for count, _ in errors)
            yield of_gpu("nvlink.errors", gpu, f"{words} errors {lately(gpu)}", value=total)
        least = thresholds.SLOW_NVLINK_SHARE
        if slow := [each for each in gpu.series(nvlink.GPU_NVLINK_LINK_SPEED_RATIO) if each.high < least]:
            words = ", ".join(f"link {each.labels['link']} at {each.last:.0%}" for each in slow)
            detail = f"link {ranges(each.labels['link'] for each in slow)}"
            yield of_gpu("nvlink.slow", gpu, f"{words} of its line rate", value=len(slow), detail=detail)
        yield from _quality(gpu)
        yield from _c2c(gpu)


def _quality(gpu: GpuEvidence) -> Iterator[Finding]:
    """Yield NVLink 5 links (which count no replays) that recover repeatedly, and links with a high bit error rate.

    On 320 GB200 GPUs all counters were 0, except the recoveries of one link: 3 more in 21 minutes, and five days later
    it failed (github.com/marin-community/marin, issue 9086).
    """
    if not gpu.has(nvlink.GPU_NVLINK_ERRORS_TOTAL, type=nvlink.REPLAY):
        spec, seconds = nvlink.GPU_NVLINK_LINK_ERRORS_TOTAL, thresholds.RECOVERIES_SECONDS
        rises = gpu.rises(spec, seconds, "link", type=nvlink.RECOVERY)
        again = {link: rise for link, rise in rises.items() if rise.amount >= gpu.limit("nvlink.recovering", "count")}
        if again:
            words = ", ".join(f"link {link} recovered {rise.amount:.0f} times" for link, rise in again.items())
            most, longest = (max(each) for each in zip(*again.values(), strict=True))
            measured, detail = f"{words} in {length_of_time(longest)}", f"link {ranges(again)}"
            yield of_gpu("nvlink.recovering", gpu, measured, value=most, detail=detail)
    high = {
        link.labels["link"]: f"link {link.labels['link']}: {link.last:.0e}"
        for link in gpu.series(nvlink.GPU_NVLINK_LINK_BIT_ERROR_RATIO, kind="effective")
        if link.low > nvlink.EFFECTIVE_BER_LIMIT
    }
    if high:
        measured = f"effective bit error rate of {', '.join(high.values())}"
        yield of_gpu("nvlink.bit_errors", gpu, measured, detail=f"link {ranges(high)}")


def _c2c(gpu: GpuEvidence) -> Iterator[Finding]:
    """Yield links to the module's CPU that are down."""
    links, links_up = gpu.last(nvlink.GPU_C2C_LINKS), gpu.recent.one(nvlink.GPU_C2C_LINKS_UP)
    if links is not None and links_up is not None and links_up.high < links:
        measured = f"{links_up.last:.0f} of {links:.0f} links are up"
        yield of_gpu("c2c.down", gpu, measured, value=links - links_up.last, detail=measured)


def _switches(host: HostEvidence) -> Iterator[Finding]:
    """Yield SXids of NVSwitches, one finding per severity. Resetting the GPUs also resets the switches."""
    damaged = any(gpu.fabric_trouble is not None for gpu in host.answering)
    open_seconds = thresholds.XID_DAMAGE_SECONDS if damaged else thresholds.XID_OPEN_SECONDS
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for last in host.series(xid_metrics.GPU_NVSWITCH_SXID_LAST_TIMESTAMP_SECONDS):
        fatal = last.labels["fatal"] == "true"
        age_seconds = host.age_seconds(last.last)
        if age_seconds > (open_seconds if fatal else thresholds.XID_RECENT_SECONDS) or last.last < host.reset_at:
            continue
        count = host.last(xid_metrics.GPU_NVSWITCH_SXID_ERRORS_TOTAL, **last.labels) or 1
        times = "" if count == 1 else f", {count:.0f} times since the kernel log begins"
        word = "fatal" if fatal else "nonfatal"
        sxid, switch = f"SXid {last.labels['sxid']}", last.labels["pci_bus_id"]
        said = f"{sxid} ({word}) of the switch at {switch}, last {host.when(last.last)}{times}"
        found["nvswitch.sxid_fatal" if fatal else "nvswitch.sxid"][f"{sxid} of switch {switch}"] = said
    for code, seen in found.items():
        yield of_host(code, first_of([*seen.values()]), len(seen), first_few(sorted(seen), 3))


def _uplinks(host: HostEvidence) -> Iterator[Finding]:
    """Yield one finding for all uplinks slower than both ends allow, the slowest first."""
    short = sorted((uplink.ratio, *_uplink_texts(host, uplink)) for uplink in host.short_uplinks)
    if short:
        yield of_host("pcie.uplink", first_of([words for _, words, _ in short]), short[0][0], short[0][2])


def _uplink_texts(host: HostEvidence, uplink: pcie_paths.ShortUplink) -> tuple[str, str]:
    """Return what is measured of an uplink, and its detail."""
    labels = uplink.labels
    gpus = {gpu.pci_bus_id: f"GPU {gpu.gpu}" for gpu in host.gpus}
    shared = ", ".join(gpus.get(bus_id, f"{kind} {bus_id}") for bus_id, kind in devices_behind(labels).items())
    is_, best = (f"x{labels[f'{of}width']} PCIe {labels[f'{of}generation']}" for of in ("", "expected_"))
    traffic = f"; {uplink.full}" if uplink.full else ""
    place = f"switch {labels['bridge']} below port {labels['port']}"
    return f"{place}: {is_} of {best}; behind it: {shared}{traffic}", f"{is_} of {best}, port {labels['port']}"


class _Path(NamedTuple):
    """The access of one GPU to another."""

    gpu: GpuEvidence
    peer: GpuEvidence
    status: str
    kind: tuple[str, str | None, str]  # model, topology level and capability

    @property
    def works(self) -> bool:
        return self.status in ("ok", "unknown")


def _peers(host: HostEvidence) -> Iterator[Finding]:
    """Yield slots that give less than others, and GPUs that do not reach each other directly."""
    for gpu, lesser in host.lesser_slots.items():
        moves = pcie_paths.traffic_text(gpu)
        gives = f"{lesser.gives.text}, that of GPU {ranges(lesser.in_slots_of)} {lesser.better.text}"
        measured = f"its slot gives {gives}{moves and f'; it {moves}'}"
        yield of_gpu("pcie.below_peers", gpu, measured, value=lesser.gives.lanes, detail=gives)
    if host.last(GPU_P2P_EXPECTED) == 0:
        return
    paths = list(_peer_paths(host))
    refused = _refused(host, paths)
    for gpu, peers in refused.items():
        words = ", ".join(f"GPU {peer}: {status}" for peer, status in peers.items())
        yield of_gpu("p2p.unavailable", gpu, words, value=len(peers), detail=f"GPU {ranges(peers)}")
    yield from _through_host([path for path in paths if path.gpu not in refused and path.peer not in refused])


def _peer_paths(host: HostEvidence) -> Iterator[_Path]:
    whole = {(gpu.gpu, gpu.uuid): gpu for gpu in host.answering if gpu.uuid and not gpu.partitioned}
    levels = host.topology_levels()
    for capability in ("read", "write"):
        for labels in host.labels_of(GPU_P2P_STATUS, capability=capability):
            gpu = whole.get((labels["gpu"], labels["uuid"]))
            peer = whole.get((labels["peer_gpu"], labels["peer_uuid"]))
            if gpu is not None and peer is not None:
                kind = (gpu.name, levels.get(frozenset((gpu.uuid, peer.uuid))), capability)
                yield _Path(gpu, peer, labels["status"], kind)


def _refused(host: HostEvidence, paths: list[_Path]) -> Mapping[GpuEvidence, Mapping[str, str]]:
    """Return pairs of GPUs of one model without direct access that they should have.

    It is expected if declared, if an equally close pair has it, and, if disabled by an administrator, with NVLink.
    """
    declared = host.last(GPU_P2P_EXPECTED) == 1
    paths = [path for path in paths if path.gpu.name == path.peer.name]
    linked = {gpu for path in paths for gpu in (path.gpu, path.peer) if gpu.has(nvlink.GPU_NVLINK_UP)}
    able = {path.kind for path in paths if path.status == "ok" and path.kind[1] is not None}
    refused: dict[GpuEvidence, dict[str, str]] = defaultdict(dict)
    for path in paths:
        forbidden = path.status == "disabled_by_regkey" and path.gpu in linked and path.peer in linked
        if not path.works and (declared or path.kind in able or forbidden):
            refused[path.gpu][path.peer.gpu] = path.status
    return refused


def _through_host(paths: list[_Path]) -> Iterator[Finding]:
    """Yield one finding for all busy GPUs, if not of different owners, that only share data through host memory."""
    slow = [path for path in paths if not path.works and path.gpu.busy and path.peer.busy]
    owners = {gpu: set(owners_of(gpu)) for gpu in {gpu for path in slow for gpu in (path.gpu, path.peer)}}
    apart = [
        path for path in slow if not owners[path.gpu] or not owners[path.peer] or owners[path.gpu] & owners[path.peer]
    ]
    gpus = {path.gpu.gpu: path.gpu for path in apart}
    if len(gpus) < 2:  # noqa: PLR2004 - a pair
        return
    statuses = ", ".join(sorted({path.status for path in apart}))
    measured = f"GPU {ranges(gpus)} exchange data through host memory ({statuses}){_cost(gpus.values())}"
    yield of_host("p2p.through_host", measured, len(gpus), f"GPU {ranges(gpus)}")


def _cost(gpus: Iterable[GpuEvidence]) -> str:
    """Describe the slowest link between these GPUs and the host; "" if no link is known."""
    speeds = [(speed, gpu) for gpu in gpus if (speed := pcie_paths.link_speed(gpu)) is not None]
    if not speeds:
        return ""
    speed, slowest = min(speeds, key=lambda each: each[0].bytes_per_second)
    moves = pcie_paths.traffic_text(slowest)
    if all(each == speed for each, _ in speeds):
        return f"; each over {speed.text}{moves and f'; GPU {slowest.gpu} {moves}'}"
    return f"; the slowest link on that way is GPU {slowest.gpu}'s, {speed.text}{moves and f', which {moves}'}"
