"""Identity of a GPU: product, serial number, architecture, firmware."""

from collections.abc import Iterator
from dataclasses import astuple, dataclass, fields
from typing import Final

from gpu_triage.driver.nvml.inquiry import Inquiry
from gpu_triage.read.metrics.contract import GpuCollector, GpuLabels, GpuRound
from gpu_triage.read.metrics.metric import Sample, Tier, gpu_info

ARCHITECTURES: Final = {
    2: "kepler",
    3: "maxwell",
    4: "pascal",
    5: "volta",
    6: "turing",
    7: "ampere",
    8: "ada",
    9: "hopper",
    10: "blackwell",
    13: "rubin",
}
"""nvmlDeviceArchitecture_t to the common name."""

_MOST_MINOR_NUMBER: Final = 254  # 255 is /dev/nvidiactl


@dataclass(frozen=True, slots=True)
class IdentityReading:
    """Labels of gpu_info; "" where not reported (serial of GeForce), ``unknown_<n>`` for a newer architecture."""

    name: str
    pci_bus_id: str
    minor_number: str = ""
    serial: str = ""
    architecture: str = ""
    compute_capability: str = ""
    vbios_version: str = ""
    board_part_number: str = ""


GPU_INFO = gpu_info(
    "Facts about the GPU; join on gpu and uuid. Kept while it is lost, and over a restart with a state directory. "
    "Unknown facts are empty. minor_number is the N of /dev/nvidiaN, which may differ from the index.",
    labels=tuple(fact.name for fact in fields(IdentityReading)),
    source="nvmlDeviceGetName and similar",
)


def read_identity(gpu: GpuRound) -> IdentityReading:
    """Identity (nvmlDeviceGetName, …MinorNumber, …Serial, …Architecture, …CudaComputeCapability, …VbiosVersion, …)."""
    inquiry = gpu.inquiry
    architecture = inquiry.ask("nvmlDeviceGetArchitecture")
    capability = inquiry.ask("nvmlDeviceGetCudaComputeCapability")  # (major, minor)
    minor_number = read_minor_number(inquiry)
    return IdentityReading(
        name=inquiry.ask("nvmlDeviceGetName") or "",
        pci_bus_id=inquiry.device.pci_bus_id or "",
        minor_number="" if minor_number is None else str(minor_number),
        serial=inquiry.ask("nvmlDeviceGetSerial") or "",
        architecture="" if architecture is None else ARCHITECTURES.get(architecture, f"unknown_{architecture}"),
        compute_capability=f"{capability[0]}.{capability[1]}" if capability and min(capability) >= 0 else "",
        vbios_version=inquiry.ask("nvmlDeviceGetVbiosVersion") or "",
        board_part_number=inquiry.ask("nvmlDeviceGetBoardPartNumber") or "",
    )


def read_minor_number(inquiry: Inquiry) -> int | None:
    """N of the GPU's device file /dev/nvidiaN (nvmlDeviceGetMinorNumber); None without a device file, as under WSL."""
    return inquiry.within(inquiry.ask("nvmlDeviceGetMinorNumber"), 0, _MOST_MINOR_NUMBER)


def render(reading: IdentityReading, gpu: GpuLabels) -> Iterator[Sample]:
    yield GPU_INFO.sample(1, *gpu, *astuple(reading))


IDENTITY = GpuCollector("what each GPU is", Tier.SLOW, lambda _config: read_identity, render, kept=True)
