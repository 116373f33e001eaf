"""Which GPUs are present, which answer, and whether the driver does, as seen by the sampler."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated

from gpu_triage.driver.nvml.session import DriverVersions
from gpu_triage.read.metrics.contract import GpuLabels, OwnSubject
from gpu_triage.read.metrics.metric import Sample, Tier, gpu_gauge, gpu_info, host_gauge, host_info
from gpu_triage.read.metrics.rendering import Each, samples

GPU_UP = gpu_gauge(
    "1 when the GPU answered within its deadline, 0 when it is lost, stalled, missing, denied or needs a reset. "
    "Stays until another GPU, or a virtual machine, takes its place.",
    source="the sampler",
)
GPU_ERROR_INFO = gpu_info(
    "Why gpu_up is 0, as a named error; absent while it is 1. If several GPUs stop together, the first is stalled, "
    "and the others are blocked by driver locks.",
    labels=("error",),
    source="the sampler",
)
GPU_DEVICES = host_gauge(
    "Number of NVIDIA GPUs by source: nvml (listed by the driver; absent while it is unavailable), pci (on the bus; "
    "in a container, those assigned to it), expected (declared, else from the baseline; absent without either), boot "
    "(the most that the driver listed since boot; without a state directory, since the exporter started). GPUs "
    "passed through to virtual machines do not count.",
    labels={"source": ("nvml", "pci", "expected", "boot")},
    source="nvmlDeviceGetCount; /sys/bus/pci/devices; --expect.gpu-count, else the baseline; the state directory",
    tier=Tier.MEDIUM,
)
GPU_DRIVER_UP = host_gauge(
    "1 while NVML responds, 0 while it cannot be used or a call about the whole driver exceeds the deadline, even if "
    "open GPUs still answer.",
    source="nvmlInit and similar",
    tier=Tier.MEDIUM,
)
GPU_DRIVER_ERROR_INFO = host_info(
    "Why gpu_driver_up is 0, as a named error; absent while it is 1.",
    labels=("error",),
    source="nvmlInit",
    tier=Tier.MEDIUM,
)
GPU_DRIVER_INFO = host_info(
    "Versions of the kernel driver, the CUDA version it supports, and the NVML library.",
    labels=("driver_version", "cuda_version", "nvml_version"),
    source="nvmlSystemGetDriverVersion and similar",
    tier=Tier.SLOW,
)
GPU_P2P_EXPECTED = host_gauge(
    "1 when GPUs of one model should reach each other directly, 0 when not, as declared, else from the baseline; "
    "absent without either.",
    source="--expect.p2p, else the baseline",
    tier=Tier.SLOW,
)


@dataclass(frozen=True, slots=True)
class GpuPresence:
    """One GPU ever seen: whether it answers (None if it is not queried), and why not (``lost``, ``stalled``, …)."""

    labels: GpuLabels
    up: Annotated[bool | None, GPU_UP]
    error: Annotated[str | None, GPU_ERROR_INFO]


@dataclass(frozen=True, slots=True)
class PresenceReading:
    """Presence of every GPU ever seen by this process, and of the driver; None for what is unknown or not declared."""

    gpus: Annotated[tuple[GpuPresence, ...], Each("labels")]
    nvml_count: Annotated[int | None, GPU_DEVICES, "nvml"]
    pci_count: Annotated[int | None, GPU_DEVICES, "pci"]
    expected_count: Annotated[int | None, GPU_DEVICES, "expected"]
    most_since_boot: Annotated[int | None, GPU_DEVICES, "boot"]
    driver_up: Annotated[bool | None, GPU_DRIVER_UP]
    driver_error: Annotated[str | None, GPU_DRIVER_ERROR_INFO]
    versions: DriverVersions | None
    expected_p2p: Annotated[bool | None, GPU_P2P_EXPECTED]


def render(reading: PresenceReading) -> Iterator[Sample]:
    yield from samples(reading)
    if reading.versions is not None:
        versions = reading.versions
        yield GPU_DRIVER_INFO.sample(1, versions.driver or "", versions.cuda or "", versions.nvml or "")


PRESENCE = OwnSubject("which GPUs are present and respond, and the state of the driver", Tier.FAST, render)
