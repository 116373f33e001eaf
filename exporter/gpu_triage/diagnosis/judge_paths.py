"""Is the path to it broken? PCIe links and their errors, peer access, NVLink."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from gpu_triage import catalogue
from gpu_triage.diagnosis import thresholds
from gpu_triage.diagnosis.findings import Finding, of_gpu
from gpu_triage.diagnosis.ladder import narrow_link, slow_link
from gpu_triage.diagnosis.view import GpuView, HostView

_DIRECT = ("read", "write")
_NOT_REFUSED = ("ok", "unknown")
_FORBIDDEN = "disabled_by_regkey"
_FABRIC_COMPLETED = 3
_ENOUGH_PEERS = 2


def judge_links(host: HostView) -> Iterator[Finding]:
    """Width and generation below what they should be. A low generation at rest saves power and is no finding."""
    for gpu in host.answering:
        narrow, slow = narrow_link(gpu), slow_link(gpu)
        if narrow is not None:
            load = "under load" if gpu.recent.loaded else "at rest"
            yield of_gpu("pcie.width" if gpu.recent.loaded else "pcie.width_idle", gpu, f"{narrow} {load}{_slot(gpu)}")
        if slow is not None and gpu.recent.loaded:
            yield of_gpu("pcie.generation", gpu, f"{slow} under load{_slot(gpu)}")
        flaps = gpu.rising(catalogue.PCIE_TRANSITIONS, thresholds.LINK_TRANSITIONS)
        if flaps is not None and gpu.loaded:
            yield of_gpu("pcie.flapping", gpu, f"{flaps:.0f} changes in {_window(gpu)}")


def _slot(gpu: GpuView) -> str:
    address = gpu.label(catalogue.INFO, "pci_bus_id")
    return f", at {address}" if address else ""


def judge_link_errors(host: HostView) -> Iterator[Finding]:
    """Replays and AER errors that rise."""
    for gpu in host.gpus:
        replays = gpu.rising(catalogue.PCIE_REPLAYS, thresholds.REPLAYS)
        if replays is not None:
            yield of_gpu("pcie.replays", gpu, f"{replays:.0f} replays in {_window(gpu)}")
        told = []
        for device in ("gpu", "port"):
            most = thresholds.CORRECTABLE_AER_ERRORS
            correctable = gpu.rising(catalogue.PCIE_AER_ERRORS, most, device=device, severity="correctable")
            if correctable is not None:
                told.append(f"{correctable:.0f} correctable on the {device}")
            for severity in ("nonfatal", "fatal"):
                track = gpu.one(catalogue.PCIE_AER_ERRORS, device=device, severity=severity)
                if track is not None and track.increase > 0:
                    told.append(f"{track.increase:.0f} {severity} on the {device}")
        if told:
            yield of_gpu("pcie.aer", gpu, f"{', '.join(told)} in {_window(gpu)}")


def _window(gpu: GpuView) -> str:
    return f"{gpu.evidence.seconds:.0f} s"


def judge_slots(host: HostView) -> Iterator[Finding]:
    """A GPU whose slot gives it less than most GPUs of its model have."""
    links: dict[str, list[tuple[GpuView, float, float]]] = defaultdict(list)
    for gpu in host.answering:
        generation = gpu.last(catalogue.PCIE_EXPECTED_GENERATION)
        width = gpu.last(catalogue.PCIE_EXPECTED_WIDTH)
        if gpu.name and generation is not None and width is not None:
            links[gpu.name].append((gpu, generation, width))
    for peers in links.values():
        if len(peers) <= _ENOUGH_PEERS:
            continue
        usual_generation = _mode([generation for _, generation, _ in peers])
        usual_width = _mode([width for _, _, width in peers])
        for gpu, generation, width in peers:
            if generation < usual_generation or width < usual_width:
                measured = (
                    f"generation {generation:.0f} and {width:.0f} lanes at most, "
                    f"its siblings {usual_generation:.0f} and {usual_width:.0f}"
                )
                yield of_gpu("pcie.below_peers", gpu, measured)


def _mode(values: list[float]) -> float:
    """The most common value; of several the greatest."""
    return max(Counter(values).items(), key=lambda item: (item[1], item[0]))[0]


def judge_peers(host: HostView) -> Iterator[Finding]:
    """Pairs of one model without direct access.

    It is expected where it is declared, where a pair as near has it, and, if an administrator disabled it, between GPUs
    with NVLink.
    """
    declared = host.evidence.last(catalogue.P2P_EXPECTED)
    if declared == 0:
        return
    whole = {(gpu.gpu, gpu.uuid): gpu for gpu in host.answering if not gpu.partitioned}
    levels = _levels(host)
    paths = [
        (gpu, peer, labels["status"], (gpu.name, levels.get(frozenset({uuid, peer_uuid})), capability))
        for capability in _DIRECT
        for labels in (path.labels for path in host.evidence.series(catalogue.P2P_STATUS, capability=capability))
        if (uuid := labels["uuid"])
        and (peer_uuid := labels["peer_uuid"])
        and (gpu := whole.get((labels["gpu"], uuid))) is not None
        and (peer := whole.get((labels["peer_gpu"], peer_uuid))) is not None
        and gpu.name == peer.name
    ]
    linked = {gpu for gpu in whole.values() if gpu.series(catalogue.NVLINK_UP)}
    able = {kind for _, _, status, kind in paths if status == "ok" and kind[1] is not None}
    refused: dict[GpuView, dict[str, str]] = defaultdict(dict)
    for gpu, peer, status, kind in paths:
        forbidden = status == _FORBIDDEN and gpu in linked and peer in linked
        if status not in _NOT_REFUSED and (declared == 1 or kind in able or forbidden):
            refused[gpu][peer.gpu] = status
    for gpu, peers in refused.items():
        yield of_gpu("p2p.unavailable", gpu, ", ".join(f"GPU {peer}: {status}" for peer, status in peers.items()))


def _levels(host: HostView) -> dict[frozenset[str], str]:
    tracks = (track.labels for track in host.evidence.series(catalogue.TOPOLOGY_INFO))
    return {frozenset({labels["uuid"], labels["peer_uuid"]}): labels["level"] for labels in tracks}


def judge_nvlink(host: HostView) -> Iterator[Finding]:
    """Links that are down, and errors that rise."""
    in_use = any(track.high for track in host.evidence.series(catalogue.NVLINK_UP))
    for gpu in host.answering:
        down = [track.labels["link"] for track in gpu.series(catalogue.NVLINK_UP) if track.high == 0]
        if down and (in_use or _links_due(host, gpu)):
            yield of_gpu("nvlink.down", gpu, f"down: link {', '.join(down)}")
        told = []
        for kinds, most in (
            ("replay|recovery", thresholds.NVLINK_REPLAYS_AND_RECOVERIES),
            ("crc", thresholds.NVLINK_CRC_ERRORS),
        ):
            errors = gpu.rising(catalogue.NVLINK_ERRORS, most, type=kinds)
            if errors is not None:
                told.append(f"{errors:.0f} {kinds.replace('|', ' and ')}")
        if told:
            yield of_gpu("nvlink.errors", gpu, f"{', '.join(told)} errors in {_window(gpu)}")


def _links_due(host: HostView, gpu: GpuView) -> bool:
    """Whether the links of a GPU should be up though none of the host is: it booted so.

    Until the fabric is completed it is the fabric that is in trouble. MIG switches links off, and so does a virtual
    machine that was given one GPU.
    """
    linked = [each for each in host.answering if each.series(catalogue.NVLINK_UP) and not each.partitioned]
    fabric = gpu.last(catalogue.FABRIC_STATE)
    return gpu in linked and len(linked) > 1 and fabric in (None, _FABRIC_COMPLETED)
