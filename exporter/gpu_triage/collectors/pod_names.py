"""Who holds the GPUs in Kubernetes' terms.

It publishes nothing of its own: the processes collector finds the names in the machine's PodNames. It is a collector
all the same, so that it runs in the host's lane, where a kubelet that hangs holds up no GPU, and that its failures
are counted and named like any other's.
"""

from __future__ import annotations

from collections.abc import Iterator

from gpu_triage.catalogue import Sample, Tier
from gpu_triage.collectors.contract import HostCollector
from gpu_triage.hardware.rounds import HostRound


def read_pod_names(round_: HostRound) -> None:
    """Nothing; the machine's PodNames are refreshed.

    Raises:
        HostReadFailed: the kubelet does not answer, or not as it should.
    """
    if round_.machine.pods is not None:
        round_.machine.pods.refresh(round_.at)


def render(_reading: None) -> Iterator[Sample]:
    """No samples."""
    return iter(())


POD_NAMES = HostCollector(
    name="pod_names",
    about="names of the pods and containers that hold GPUs",
    tier=Tier.MEDIUM,
    metrics=(),
    reader=lambda _config: read_pod_names,
    render=render,
    needs="kubernetes_pod_resources_socket",
)
