"""Why a host's GPUs could not be looked at, and the next step, by the driver's named error."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from gpu_triage import catalogue
from gpu_triage.diagnosis.evidence import Evidence

_READ_LOG: Final = "read the kernel log (dmesg | grep -i nvrm)"
_NEXT_STEPS: Final = MappingProxyType(
    {
        "library_not_found": "libnvidia-ml.so.1 is not installed here; install the driver, or, in a container, "
        "run it with the NVIDIA runtime and the utility capability",
        "library_invalid": "libnvidia-ml.so.1 is there but cannot be loaded; reinstall the driver's libraries",
        "driver_not_loaded": "the kernel module is not loaded; modprobe nvidia, then " + _READ_LOG,
        "version_mismatch": "the library and the loaded kernel module are of different versions; reload the module "
        "or reboot",
        "no_permission": "the device files may not be opened; check /dev/nvidia* and the container's devices",
        "released": "the GPUs were released on request, and nobody monitors them; SIGUSR2 or POST /-/acquire takes "
        "them back",
        "stalled": "the driver does not answer in time, as when a GPU hangs; " + _READ_LOG + " and reboot the host",
        "no_answer": "nothing answered in time; " + _READ_LOG + ", or raise --patience",
    }
)


def obstacle(evidence: Evidence, error: str | None) -> str | None:
    """Why there was nothing to look at, and what to do; None when there was, or when no GPU is expected.

    Args:
        evidence: what was seen all the same.
        error: the driver's named error; None when it answered.
    """
    if evidence.last(catalogue.DEVICES, source="expected") == 0:
        return None
    if error is not None and evidence.last(catalogue.DEVICES, source="pci") == 0:
        return f"no NVIDIA GPU on the PCI bus ({error}); set --expect.gpu-count 0 if that is right"
    if error is not None:
        return f"{error}: {_NEXT_STEPS.get(error, _READ_LOG)}"
    if not evidence.series(catalogue.UP):
        return "the driver shows no GPU; set --expect.gpu-count 0 if that is right"
    return None
