"""What a GPU is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gpu_triage.hardware.rounds import GpuRound

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
"""nvmlDeviceArchitecture_t to the name people use."""


@dataclass(frozen=True, slots=True)
class IdentityReading:
    """Facts that make one GPU this GPU; "" where not reported.

    Attributes:
        name: the product (``NVIDIA H100 80GB HBM3``).
        pci_bus_id: as sysfs writes it (``0000:65:00.0``).
        serial: the board's serial number; GeForce boards have none.
        architecture: ``hopper``; ``unknown_<n>`` for one newer than this program.
        compute_capability: ``9.0``.
        vbios_version: of the video BIOS.
        board_part_number: as printed on the board.
    """

    name: str
    pci_bus_id: str
    serial: str
    architecture: str
    compute_capability: str
    vbios_version: str
    board_part_number: str


def read_identity(gpu: GpuRound) -> IdentityReading:
    """Identity (nvmlDeviceGetName, …Serial, …Architecture, …CudaComputeCapability, …VbiosVersion, …BoardPartNumber)."""
    inquiry = gpu.inquiry
    architecture = inquiry.ask("nvmlDeviceGetArchitecture")
    capability = inquiry.ask("nvmlDeviceGetCudaComputeCapability")  # (major, minor)
    return IdentityReading(
        name=inquiry.ask("nvmlDeviceGetName") or "",
        pci_bus_id=inquiry.device.pci_bus_id or "",
        serial=inquiry.ask("nvmlDeviceGetSerial") or "",
        architecture="" if architecture is None else ARCHITECTURES.get(architecture, f"unknown_{architecture}"),
        compute_capability=f"{capability[0]}.{capability[1]}" if capability and min(capability) >= 0 else "",
        vbios_version=inquiry.ask("nvmlDeviceGetVbiosVersion") or "",
        board_part_number=inquiry.ask("nvmlDeviceGetBoardPartNumber") or "",
    )
