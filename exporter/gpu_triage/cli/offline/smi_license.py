"""Parses the vGPU license from nvidia-smi output."""

from __future__ import annotations

from typing import Final

from gpu_triage.cli.offline import smi_values as values
from gpu_triage.cli.offline.smi_facts import Facts
from gpu_triage.read.gpu.vgpu_license import GPU_VGPU_LICENSE_STATE, LICENSED, VgpuLicenseReading

_LICENSES: Final = {
    f"unlicensed{words}": GPU_VGPU_LICENSE_STATE.value_of(state)
    for words, state in (
        ("", "unlicensed"),
        (" (unrestricted)", "unlicensed, not yet restricted"),
        (" (restricted)", "unlicensed, restricted"),
    )
}
_IS_VGPU: Final = {"vgpu": True, "none": False, "pass-through": False, "host vgpu": False, "host vsga": False}


def read_license(facts: Facts) -> VgpuLicenseReading:
    """The vGPU license; a GPU passed through as a whole needs none to run at full speed."""
    is_vgpu = facts.choice(
        _IS_VGPU, "gpu virtualization mode/virtualization mode", "gpu_virtualization_mode/virtualization_mode"
    )
    sections = ("vgpu software licensed product", "grid licensed product")
    status = facts.parsed(
        _license_state,
        *(f"{section}/license status" for section in sections),
        *(f"{section.replace(' ', '_')}/license_status" for section in sections),
    )
    product = facts.text(
        *(f"{section}/product name" for section in sections),
        *(f"{section.replace(' ', '_')}/licensed_product_name" for section in sections),
    )
    if status is None or is_vgpu is False:
        return VgpuLicenseReading({})
    return VgpuLicenseReading({product: status})


def _license_state(value: str) -> int | None:
    plain = values.normalized(value)
    return LICENSED if plain.startswith("licensed") else _LICENSES.get(plain)
