"""Questions whose pynvml wrapper wants a struct from its caller, and the version numbers that go with them."""

from __future__ import annotations

import ctypes
from typing import Final

import pynvml

from gpu_triage.hardware.nvml import Inquiry

MEMORY_V2: Final[int] = pynvml.nvmlMemory_v2
"""Version argument that makes nvmlDeviceGetMemoryInfo tell reserved memory apart."""


def sram_threshold_exceeded(inquiry: Inquiry) -> bool | None:
    """Whether uncorrected SRAM errors passed the board's threshold (nvmlDeviceGetSramEccErrorStatus).

    None before Ampere, on drivers older than r550, and without root where the driver asks for it.
    """
    status = pynvml.c_nvmlEccSramErrorStatus_v1_t()
    status.version = pynvml.nvmlEccSramErrorStatus_v1
    # The wrapper passes the struct as it is; the driver wants its address.
    answer = inquiry.ask_privileged("nvmlDeviceGetSramEccErrorStatus", ctypes.byref(status))
    return None if answer is None else inquiry.flag(status.bThresholdExceeded)
