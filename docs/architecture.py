"""The README's diagram of the path from driver readings to responses."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final

from gpu_triage.judge.findings.table import CHECKS
from gpu_triage.read.exporter.judgment import GPU_BOTTLENECK
from gpu_triage.read.metrics.contract import AnyCollector, AnyHostCollector
from gpu_triage.read.metrics.metric import Tier
from gpu_triage.read.registry import GPU_COLLECTORS, HOST_COLLECTORS

_IN_A_LINE: Final = 4


def architecture() -> str:
    """A Mermaid diagram of what is read, how often, and where it goes; names and counts come from the registry."""
    sources: dict[str, Sequence[AnyCollector]] = {
        "GPUs, from NVML": GPU_COLLECTORS,
        "Host, from /proc and /sys": [each for each in HOST_COLLECTORS if not _is_optional(each)],
        "If you ask for them": [each for each in HOST_COLLECTORS if _is_optional(each)],
    }
    findings = sum(not check.code.removeprefix("xid.").isdecimal() for check in CHECKS)
    lines = [
        *(_node(f"read{number}", title, *_by_tier(each)) for number, (title, each) in enumerate(sources.items())),
        _node("xid", "Xids and SXids", "NVML events, kernel log"),
        _node("sampler", "Sampler", "a thread for each GPU", "a deadline for each call"),
        _node("snapshot", "Snapshot", "every collector's last reading", "swapped in whole"),
        _node("judge", "Judge", f"{len(GPU_BOTTLENECK.states)} bottleneck classes", f"{findings} findings, and Xids"),
        _node("answers", "Answers", "/metrics", "status page", "/api/v1/verdict"),
        _node("prometheus", "Prometheus and Grafana", "rules", "alerts", "dashboards"),
        "read0 & read1 & read2 & xid --> sampler --> snapshot --> judge --> answers --> prometheus",
        "snapshot --> answers",
    ]
    return "\n".join(["```mermaid", "flowchart LR", *(f"    {line}" for line in lines), "```", ""])


def _node(name: str, title: str, *about: str) -> str:
    return f'{name}["{"<br/>".join([f"<b>{title}</b>", *about])}"]'


def _is_optional(collector: AnyHostCollector) -> bool:
    return collector.needs is not None


def _by_tier(collectors: Iterable[AnyCollector]) -> Iterator[str]:
    """Names of collectors, most frequent first, a few per line."""
    order = list(Tier)
    for tier, group in groupby(sorted(collectors, key=lambda each: order.index(each.tier)), key=lambda each: each.tier):
        names = [each.name.removeprefix("host_").replace("_", " ") for each in group]
        yield f"<i>{tier.value}</i>"
        yield from (", ".join(names[at : at + _IN_A_LINE]) for at in range(0, len(names), _IN_A_LINE))
