"""Which of NVIDIA's kernel modules are loaded."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpu_triage import catalogue
from gpu_triage.catalogue import Tier
from gpu_triage.collectors.contract import HostCollector
from gpu_triage.hardware.host_modules import MODULES as MODULE_NAMES
from gpu_triage.hardware.host_modules import HostModulesReading, read_host_modules

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gpu_triage.catalogue import Sample


def render(reading: HostModulesReading) -> Iterator[Sample]:
    """Samples of one reading."""
    if reading.loaded is None:
        return
    for module in MODULE_NAMES:
        yield catalogue.KERNEL_MODULE_LOADED.sample(module in reading.loaded, module)


MODULES = HostCollector(
    name="modules",
    about="kernel modules of the driver",
    tier=Tier.MEDIUM,
    metrics=(catalogue.KERNEL_MODULE_LOADED,),
    reader=lambda _config: read_host_modules,
    render=render,
)
