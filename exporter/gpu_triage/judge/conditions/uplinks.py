"""Is the path above the slots broken? Links of PCIe switches shared by several GPUs and adapters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpu_triage.judge.bottleneck.classes import Bottlenecks
from gpu_triage.judge.conditions.kernel import first_of
from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.judge.evidence.uplinks import behind, full_uplink
from gpu_triage.judge.findings.finding import Finding, of_host
from gpu_triage.read.host.pcie_uplinks import GPU_HOST_PCIE_UPLINK_INFO, GPU_HOST_PCIE_UPLINK_RATIO


def judge_uplinks(host: HostEvidence, _bottlenecks: Bottlenecks) -> Iterator[Finding]:
    """Yield uplinks slower than both ends allow; a low generation only counts while a GPU behind it is loaded."""
    short: list[tuple[float, str]] = []
    for labels in host.labels_of(GPU_HOST_PCIE_UPLINK_INFO):
        ends = {name: labels[name] for name in ("bridge", "port")}
        ratio = host.recent.one(GPU_HOST_PCIE_UPLINK_RATIO, **ends)
        narrow = int(labels["width"]) < int(labels["expected_width"])
        works = any(gpu.recent.loaded for gpu in behind(host, labels))
        if ratio is not None and ratio.high < 1 and (narrow or works):
            short.append((ratio.high, _words(host, labels)))
    if short:
        short.sort()
        yield of_host("pcie.uplink", first_of([words for _, words in short]), short[0][0])


def _words(host: HostEvidence, labels: Mapping[str, str]) -> str:
    gpus = {gpu.pci_bus_id: f"GPU {gpu.gpu}" for gpu in host.gpus}
    kinds = (each.split(" ", 1) for each in labels["behind"].split(", "))
    shared = ", ".join(gpus.get(bus_id, f"{kind} {bus_id}") for kind, bus_id in kinds)
    is_, best = (f"x{labels[f'{of}width']} PCIe {labels[f'{of}generation']}" for of in ("", "expected_"))
    full = full_uplink(host, labels)
    traffic = f"; {full}" if full else ""
    return f"switch {labels['bridge']} below port {labels['port']}: {is_} of {best}; behind it: {shared}{traffic}"
