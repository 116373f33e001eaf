"""The readings of each GPU: the numbers behind its bottleneck and verdict, one GPU a row."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpu_triage import catalogue
from gpu_triage.diagnosis.evidence import Track
from gpu_triage.diagnosis.judge import Judgement
from gpu_triage.diagnosis.ladder import narrow_link, slow_link
from gpu_triage.diagnosis.report import GpuVerdict
from gpu_triage.diagnosis.view import GpuView
from gpu_triage.web.page.markup import (
    UNKNOWN,
    bar,
    chip,
    class_chip,
    foreign,
    safe,
    section,
    soft,
    table,
    verdict_chip,
)
from gpu_triage.web.page.overview import urgency

_HEADS: Final = (
    "GPU",
    "Bottleneck",
    "Findings",
    "Busy",
    "Memory",
    "Power",
    "Temperature",
    "PCIe link",
    "Processes",
)
_GIB: Final = 1024.0**3
_SHOWN_PROCESSES: Final = 2


def gpus_section(latest: Judgement) -> str:
    """The table of GPUs, worst first; "" without any."""
    verdicts = latest.report.gpus
    if not verdicts:
        return ""
    models = {verdict.name for verdict in verdicts if verdict.name}
    pairs = sorted(zip(latest.host.gpus, verdicts, strict=True), key=lambda pair: urgency(pair[1]))
    rows = (_row(view, verdict, named=len(models) > 1) for view, verdict in pairs)
    return section("gpus", "Readings", table("Readings of each GPU", _HEADS, rows, "gpus"))


def _row(gpu: GpuView, verdict: GpuVerdict, *, named: bool) -> str:
    name = verdict.bottleneck.name
    told = soft(gpu.name if named else "") + soft(verdict.pci_bus_id)
    cells = (
        f"<strong>{safe(gpu.gpu)}</strong> {verdict_chip(verdict.verdict)}{told}",
        class_chip(name, verdict.verdict) + soft(verdict.bottleneck.because) + soft(verdict.bottleneck.unseen),
        _findings(verdict),
        _busy(gpu),
        _memory(gpu),
        _power(gpu),
        _temperature(gpu),
        _link(gpu),
        _processes(gpu),
    )
    first, *others = cells
    return (
        f'<tr id="gpu-{safe(gpu.gpu)}" data-gpu="{safe(gpu.gpu)}" data-bottleneck="{safe(name)}" '
        f'data-verdict="{safe(verdict.verdict.value)}" '
        f'data-findings="{safe(" ".join(verdict.codes))}"><th scope="row">{first}</th>'
        + "".join(f"<td>{cell}</td>" for cell in others)
        + "</tr>"
    )


def _findings(verdict: GpuVerdict) -> str:
    codes = "<br>".join(f"<code>{safe(code)}</code>" for code in verdict.codes)
    return codes or UNKNOWN


def _busy(gpu: GpuView) -> str:
    share = gpu.busy_share if gpu.up else None
    return UNKNOWN if share is None else f"{share:.0%}{bar(share)}"


def _memory(gpu: GpuView) -> str:
    used, total = gpu.last(catalogue.MEMORY_USED), gpu.last(catalogue.MEMORY_TOTAL)
    if used is None:
        return UNKNOWN
    if not total:
        return f"{used / _GIB:.1f} GiB"
    return f"{used / _GIB:.1f} of {total / _GIB:.0f} GiB{bar(used / total)}"


def _power(gpu: GpuView) -> str:
    power, limit = gpu.last(catalogue.POWER), gpu.last(catalogue.POWER_LIMIT)
    if power is None:
        return UNKNOWN
    lowered = soft("limit below default") if gpu.capped else ""
    return f"{power:.0f} W" if not limit else f"{power:.0f} of {limit:.0f} W{bar(power / limit)}{lowered}"


def _temperature(gpu: GpuView) -> str:
    core = gpu.last(catalogue.TEMPERATURE, sensor="gpu")
    memory = gpu.last(catalogue.TEMPERATURE, sensor="memory")
    if core is None:
        return UNKNOWN
    return f"{core:.0f} °C" + soft("" if memory is None else f"memory {memory:.0f} °C")


def _link(gpu: GpuView) -> str:
    generation, width = gpu.last(catalogue.PCIE_GENERATION), gpu.last(catalogue.PCIE_WIDTH)
    if generation is None or width is None:
        return UNKNOWN
    link = f"gen {generation:.0f} x{width:.0f}"
    expected = _expected_link(gpu)
    if not expected:
        return link
    if narrow_link(gpu) is not None or (gpu.recent.loaded and slow_link(gpu) is not None):
        return chip(link, "path") + soft(f"expected {expected}")
    return link if link == expected else link + soft(f"of {expected}, at idle")


def _expected_link(gpu: GpuView) -> str:
    generation, width = gpu.last(catalogue.PCIE_EXPECTED_GENERATION), gpu.last(catalogue.PCIE_EXPECTED_WIDTH)
    return "" if generation is None or width is None else f"gen {generation:.0f} x{width:.0f}"


def _processes(gpu: GpuView) -> str:
    if not gpu.processes_known:
        return UNKNOWN
    count = sum(int(track.last) for track in gpu.series(catalogue.PROCESSES))
    named = list(_named(gpu))
    rest = len(named) - _SHOWN_PROCESSES
    more = [f'<small class="soft">and {rest} more</small>'] if rest > 0 else []
    return "<br>".join(named[:_SHOWN_PROCESSES] + more) or str(count)


def _named(gpu: GpuView) -> Iterator[str]:
    held = {track.labels["pid"]: track.last for track in gpu.series(catalogue.PROCESS_MEMORY)}
    tracks = gpu.series(catalogue.PROCESS_INFO)
    for track in sorted(tracks, key=lambda track: -held.get(track.labels["pid"], 0.0)):
        name, pid = track.labels["process"] or "process", track.labels["pid"]
        yield f"<small>{foreign(name)} {safe(pid)}{_owner(track)}</small>"


def _owner(track: Track) -> str:
    """The pod or the Slurm job of a process, where one is known."""
    labels = track.labels
    if labels["workload_pod"]:
        return f" {foreign(labels['workload_namespace'] + '/' + labels['workload_pod'])}"
    return f" Slurm {foreign(labels['slurm_job_id'])}" if labels["slurm_job_id"] else ""
