"""Is the path above the slots broken? Links of PCIe switches shared by several GPUs and adapters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gpu_triage.judge.conditions.kernel import first_of
from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.judge.evidence.slots import full_uplink, short_uplinks
from gpu_triage.judge.findings.finding import Finding, of_host
from gpu_triage.read.host.pcie_uplinks import devices_behind


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
