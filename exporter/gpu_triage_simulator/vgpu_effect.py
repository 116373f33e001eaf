"""What can happen to the license of a vGPU; an effect like those in `effects`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class VgpuLicense:
    """The host is a virtual machine, and the GPU is a vGPU."""

    licensed: bool  # whether it has a license
    product: str = "NVIDIA Virtual Compute Server"  # the licensed product
