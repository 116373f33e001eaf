"""Page section with the readings behind each GPU's bottleneck and verdict, one row per GPU."""

from __future__ import annotations

from typing import Final

from gpu_triage.judge.evidence.faults import slow_link
from gpu_triage.judge.evidence.gpu import GpuEvidence
from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.judge.evidence.lanes import Shortage, missing_lanes
from gpu_triage.judge.evidence.owners import owners_text
from gpu_triage.judge.evidence.series import Series
from gpu_triage.judge.host_judge import Judgment
from gpu_triage.judge.report.report import GpuReadings, GpuVerdict
from gpu_triage.read.gpu.thermal import GPU_TEMPERATURE_CELSIUS
from gpu_triage.read.processes.on_gpu import GPU_PROCESS_INFO, GPU_PROCESS_MEMORY_BYTES, GPU_PROCESSES
from gpu_triage.serve.page.markup import (
    UNKNOWN,
    bar,
    chip,
    class_chip,
    foreign,
    row,
    safe,
    section,
    soft,
    table,
    verdict_chip,
)
from gpu_triage.serve.page.overview import urgency

_HEADS: Final = ("GPU", "Bottleneck", "Findings", "Busy", "Memory", "Power", "Temperature", "PCIe link", "Processes")
_GIB: Final = 1024.0**3
_SHOWN_PROCESSES: Final = 2


def gpus_section(latest: Judgment) -> str:
    """The table of GPUs, worst first, or ""."""
    verdicts = latest.report.gpus
    if not verdicts:
        return ""
    models = {verdict.name for verdict in verdicts if verdict.name}
    pairs = sorted(zip(latest.host.gpus, verdicts, strict=True), key=lambda pair: urgency(pair[1]))
    rows = (_row(latest, view, verdict, named=len(models) > 1) for view, verdict in pairs)
    return section("gpus", "Readings", table("Readings of each GPU", _HEADS, rows, "gpus"))


def _row(latest: Judgment, gpu: GpuEvidence, verdict: GpuVerdict, *, named: bool) -> str:
    name = verdict.bottleneck.name
    details = soft(gpu.name if named else "") + soft(verdict.pci_bus_id) + soft(owners_text(verdict.owners))
    cells = (
        class_chip(name, verdict.verdict) + soft(verdict.bottleneck.because) + soft(verdict.bottleneck.unseen),
        "<br>".join(f"<code>{safe(code)}</code>" for code in verdict.codes) or UNKNOWN,
        _busy(verdict.readings),
        _memory(verdict.readings),
        _power(verdict.readings, capped=gpu.capped),
        _temperature(gpu, verdict.readings),
        _link(latest.host, gpu, verdict.readings),
        _processes(gpu),
    )
    return row(
        f"<strong>{safe(gpu.gpu)}</strong> {verdict_chip(verdict.verdict, latest.report.words)}{details}",
        cells,
        id=f"gpu-{gpu.gpu}",
        data_gpu=gpu.gpu,
        data_bottleneck=name,
        data_verdict=verdict.verdict.value,
        data_findings=" ".join(verdict.codes),
    )


def _busy(readings: GpuReadings) -> str:
    share = readings.busy_ratio
    return UNKNOWN if share is None else f"{share:.0%}{bar(share)}"


def _memory(readings: GpuReadings) -> str:
    used, total = readings.memory_used_bytes, readings.memory_total_bytes
    if used is None:
        return UNKNOWN
    if not total:
        return f"{used / _GIB:.1f} GiB"
    return f"{used / _GIB:.1f} of {total / _GIB:.0f} GiB{bar(used / total)}"


def _power(readings: GpuReadings, *, capped: bool) -> str:
    power, limit = readings.power_watts, readings.power_limit_watts
    if power is None:
        return UNKNOWN
    lowered = soft("limit below default") if capped else ""
    return f"{power:.0f} W" if not limit else f"{power:.0f} of {limit:.0f} W{bar(power / limit)}{lowered}"


def _temperature(gpu: GpuEvidence, readings: GpuReadings) -> str:
    core = readings.temperature_celsius
    memory = gpu.last(GPU_TEMPERATURE_CELSIUS, sensor="memory")
    if core is None:
        return UNKNOWN
    return f"{core:.0f} °C" + soft("" if memory is None else f"memory {memory:.0f} °C")


def _link(host: HostEvidence, gpu: GpuEvidence, readings: GpuReadings) -> str:
    link = _lanes(readings.pcie_generation, readings.pcie_width)
    expected = _lanes(readings.pcie_expected_generation, readings.pcie_expected_width)
    if not link or not expected:
        return link or UNKNOWN
    missing = missing_lanes(host, gpu)
    built = missing is not None and missing.kind is Shortage.BUILT
    if (missing is not None and not built) or (gpu.recent.loaded and slow_link(gpu) is not None):
        return chip(link, "path") + soft(f"expected {expected}")
    if built:
        return link + soft(f"of {expected}, as its siblings")
    return link if link == expected else link + soft(f"of {expected}, at idle")


def _lanes(generation: float | None, width: float | None) -> str:
    return "" if generation is None or width is None else f"gen {generation:.0f} x{width:.0f}"


def _processes(gpu: GpuEvidence) -> str:
    if not gpu.processes_known:
        return UNKNOWN
    held = {track.labels["pid"]: track.last for track in gpu.series(GPU_PROCESS_MEMORY_BYTES)}
    tracks = sorted(gpu.series(GPU_PROCESS_INFO), key=lambda track: -held.get(track.labels["pid"], 0.0))
    lines = [
        f"<small>{foreign(track.labels['process'] or 'process')} {safe(track.labels['pid'])}{_owner(track)}</small>"
        for track in tracks[:_SHOWN_PROCESSES]
    ]
    if len(tracks) > _SHOWN_PROCESSES:
        lines.append(f'<small class="soft">and {len(tracks) - _SHOWN_PROCESSES} more</small>')
    count = sum(int(track.last) for track in gpu.series(GPU_PROCESSES))
    return "<br>".join(lines) or str(count)


def _owner(track: Series) -> str:
    labels = track.labels
    if labels["workload_pod"]:
        return f" {foreign(labels['workload_namespace'] + '/' + labels['workload_pod'])}"
    return f" Slurm {foreign(labels['slurm_job_id'])}" if labels["slurm_job_id"] else ""
