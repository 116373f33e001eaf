"""What can happen to the license of a vGPU; an effect as those of `effects`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class VgpuLicense:
    """The host is a virtual machine, and the GPU a part of one that it was given.

    Attributes:
        licensed: whether it has its license.
        product: what it is licensed as.
    """

    licensed: bool
    product: str = "NVIDIA Virtual Compute Server"
