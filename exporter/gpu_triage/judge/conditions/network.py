"""Do the host's network ports and other interfaces keep their links, at full rate and without errors?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gpu_triage.judge.evidence import thresholds
from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.judge.evidence.remember import lately, was_up
from gpu_triage.judge.findings.finding import Finding, of_host
from gpu_triage.read.host.infiniband import (
    GPU_HOST_INFINIBAND_LINK_DOWNS_TOTAL,
    GPU_HOST_INFINIBAND_LINK_ERRORS_TOTAL,
    GPU_HOST_INFINIBAND_PHYSICAL_STATE,
    GPU_HOST_INFINIBAND_RATE_EXPECTED_RATIO,
    GPU_HOST_INFINIBAND_TIMEOUTS_TOTAL,
    GPU_HOST_INFINIBAND_UP,
    PORT_LINK_UP,
)
from gpu_triage.read.host.network_interfaces import (
    GPU_HOST_NETWORK_CARRIER_DOWNS_TOTAL,
    GPU_HOST_NETWORK_ERRORS_TOTAL,
    GPU_HOST_NETWORK_SPEED_EXPECTED_RATIO,
)
from gpu_triage.read.metrics.metric import MetricSpec


def judge_network(host: HostEvidence) -> Iterator[Finding]:
    """Yield one finding per kind of trouble, naming the affected ports."""
    most_downs = host.limit("network.port_flapping", "downs")
    flapping = [
        (":".join(each.values), count)
        for each in host.series(GPU_HOST_INFINIBAND_LINK_DOWNS_TOTAL)
        if (count := _downs(host, GPU_HOST_INFINIBAND_LINK_DOWNS_TOTAL, each.labels)) > most_downs
    ]
    if flapping:
        ports = ", ".join(f"{port} {count:.0f} times" for port, count in flapping)
        yield of_host("network.port_flapping", f"link lost in the last hour: {ports}", _most(flapping))
    if errors := _rose(host, GPU_HOST_INFINIBAND_LINK_ERRORS_TOTAL, host.limit("network.port_errors", "count")):
        ports = ", ".join(f"{port} {count:.0f} link errors" for port, count in errors)
        yield of_host("network.port_errors", f"{ports} {lately(host)}", _most(errors))
    slow = [each for each in host.series(GPU_HOST_INFINIBAND_RATE_EXPECTED_RATIO) if each.high < 1]
    if ports := ", ".join(f"{':'.join(each.values)} at {each.last:.0%}" for each in slow):
        yield of_host("network.port_slow", f"{ports} of the rate that it should have", min(each.last for each in slow))
    yield from _interfaces(host)
    if timeouts := _rose(host, GPU_HOST_INFINIBAND_TIMEOUTS_TOTAL, host.limit("network.timeouts", "count")):
        ports = ", ".join(f"{port} {count:.0f}" for port, count in timeouts)
        yield of_host("network.timeouts", f"requests not acknowledged: {ports} {lately(host)}", _most(timeouts))
    down = [each for each in host.series(GPU_HOST_INFINIBAND_UP) if not each.last and was_up(host, each.values)]
    if ports := ", ".join(":".join(each.values) for each in down):
        yield of_host("network.port_down", f"was up, and is down: {ports}", len(down))
    linked = (each for each in host.series(GPU_HOST_INFINIBAND_PHYSICAL_STATE) if each.low == PORT_LINK_UP)
    waiting = [port for port in linked if _never_up(host, port.labels)]
    if ports := ", ".join(":".join(each.values) for each in waiting):
        yield of_host("network.port_waiting", f"link up and port not active: {ports}", len(waiting))


def _interfaces(host: HostEvidence) -> Iterator[Finding]:
    """Yield findings about interfaces other than RDMA ports: flapping or slow links, and bad packets."""
    most_downs = host.limit("network.link_degraded", "downs")
    degraded = [
        f"{each.labels['device']} lost its link {count:.0f} times in the last hour"
        for each in host.series(GPU_HOST_NETWORK_CARRIER_DOWNS_TOTAL)
        if (count := _downs(host, GPU_HOST_NETWORK_CARRIER_DOWNS_TOTAL, each.labels)) > most_downs
    ]
    slow = (ratio for ratio in host.series(GPU_HOST_NETWORK_SPEED_EXPECTED_RATIO) if ratio.high < 1)
    degraded += [f"{ratio.labels['device']} runs at {ratio.last:.0%} of the speed that it had" for ratio in slow]
    if degraded:
        yield of_host("network.link_degraded", "; ".join(degraded), len(degraded))
    devices = dict.fromkeys(labels["device"] for labels in host.labels_of(GPU_HOST_NETWORK_ERRORS_TOTAL))
    most = host.limit("network.interface_errors", "count")
    counts = ((device, host.rose(GPU_HOST_NETWORK_ERRORS_TOTAL, most, device=device)) for device in devices)
    if bad := [(device, count) for device, count in counts if count is not None]:
        ports = ", ".join(f"{device} {count:.0f}" for device, count in bad)
        yield of_host("network.interface_errors", f"bad packets: {ports} {lately(host)}", _most(bad))


def _downs(host: HostEvidence, spec: MetricSpec, labels: Mapping[str, str]) -> float:
    return host.risen(spec, thresholds.PORT_DOWNS_SECONDS, **labels).amount


def _rose(host: HostEvidence, spec: MetricSpec, most: float) -> list[tuple[str, float]]:
    """Return the ports where the counter recently rose by more than `most`, and by how much."""
    counts = ((":".join(each.values), host.rose(spec, most, **each.labels)) for each in host.series(spec))
    return [(port, count) for port, count in counts if count is not None]


def _most(counts: Sequence[tuple[str, float]]) -> float:
    return max(count for _, count in counts)


def _never_up(host: HostEvidence, labels: Mapping[str, str]) -> bool:
    """Whether a port was down throughout the window."""
    up = host.one(GPU_HOST_INFINIBAND_UP, **labels)
    return up is not None and up.high == 0
