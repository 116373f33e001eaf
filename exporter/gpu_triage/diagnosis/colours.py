"""One colour for each bottleneck class, for the status page and the dashboards alike."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

CLASS_COLOURS: Final[Mapping[str, str]] = MappingProxyType(
    {
        # Red: the GPU is sick.
        "sick": "#c92a2a",
        # Amber: something holds it back.
        "thermal": "#e8590c",
        "power_brake": "#f08c00",
        # Magenta: the path to it is broken.
        "pcie_link": "#c2259d",
        "power_cap": "#f5b82e",
        "clock_cap": "#c9a227",
        # Violet: the software is in the way.
        "hung": "#5f3dc4",
        # Blue: the host starves it.
        "memory": "#1c4fa0",
        "storage": "#1c7ed6",
        "cpu": "#4dabf7",
        "network": "#0c8599",
        "numa": "#66c5d6",
        "communication": "#845ef7",
        # Green: the GPU itself is the limit, as it should be.
        "compute": "#2f9e44",
        "unattributed": "#b39ddb",
        "idle": "#8a94a3",
    }
)
"""Fill colour of each class, in the order of their ranks; legible on a light and on a dark ground."""
