"""ECC errors of the host's memory, corrected and uncorrected, by memory controller and DIMM (EDAC)."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Final

from gpu_triage.driver.kernel.files import parse_count, read_names, read_text
from gpu_triage.driver.kernel.inquiry import HostInquiry
from gpu_triage.errors import HostReadFailed
from gpu_triage.read.metrics.bounds import Bound
from gpu_triage.read.metrics.contract import HostCollector
from gpu_triage.read.metrics.metric import ANY, Tier, host_counter
from gpu_triage.read.metrics.monotone import MonotoneCounters
from gpu_triage.read.metrics.rounds import HostRound

_MOST_CONTROLLERS: Final = 64
_MOST_DIMMS: Final = 256
_CONTROLLER: Final = re.compile(r"mc[0-9]{1,3}")
_DIMM_NAMES: Final = tuple(f"{kind}{number}" for kind in ("dimm", "rank") for number in range(128))
"""Kernel names of a controller's DIMMs; numbers may have gaps."""
_SEVERITIES: Final = {"corrected": "ce", "uncorrected": "ue"}

GPU_HOST_EDAC_ERRORS_TOTAL = host_counter(
    "gpu_host_edac_errors_total",
    "Errors of the host's memory since the driver of its memory controller was loaded, by what ECC made of them "
    "({severity}). Absent on hosts without ECC memory and where no EDAC driver is loaded.",
    labels={"controller": ANY, "severity": _SEVERITIES},
    source="/sys/devices/system/edac/mc/mc*/{ce,ue}_count",
)
GPU_HOST_EDAC_DIMM_ERRORS_TOTAL = host_counter(
    "gpu_host_edac_dimm_errors_total",
    "The same by DIMM, or by rank where the driver knows no DIMMs. `dimm_label` is the name set by the driver, "
    "the firmware or an administrator, which may match the label printed next to the slot. DIMMs without errors "
    "are shown only with profile full.",
    labels={"controller": ANY, "dimm": ANY, "dimm_label": ANY, "severity": _SEVERITIES},
    source="/sys/devices/system/edac/mc/mc*/{dimm,rank}*/dimm_{ce,ue}_count",
    default_samples=lambda sample: bool(sample.value),
)


@dataclass(frozen=True, slots=True)
class HostEdacReading:
    """Monotonic error counts of the host's memory by the metrics' labels; empty if no EDAC driver is loaded.

    A DIMM has its kernel name (``dimm3``, ``rank1``) and its label (``CPU_SrcID#0_MC#0_Chan#1_DIMM#0``, or "").
    """

    controllers: Annotated[Mapping[tuple[str, str], int], GPU_HOST_EDAC_ERRORS_TOTAL]
    dimms: Annotated[Mapping[tuple[str, str, str, str], int], GPU_HOST_EDAC_DIMM_ERRORS_TOTAL]


class HostEdacReader:
    """Reads error counts; keeps them monotonic, as root can reset them (``reset_counters``)."""

    def __init__(self) -> None:
        self._counters: MonotoneCounters[tuple[str, str, str]] = MonotoneCounters()
        self._controllers = Bound(_MOST_CONTROLLERS, "too_many_controllers")
        self._dimms = Bound(_MOST_DIMMS, "too_many_dimms")

    def read(self, round_: HostRound) -> HostEdacReading:
        """Read the error counts of memory controllers and DIMMs.

        Source: ``/sys/devices/system/edac/mc``, https://docs.kernel.org/admin-guide/RAS/main.html

        Raises:
            HostReadFailed: controllers exist but none of their files can be read or parsed, or no sysfs is mounted.
        """
        sysfs = round_.machine.sysfs
        inquiry = HostInquiry(round_.failures, sysfs)
        root = sysfs / "devices" / "system" / "edac" / "mc"
        found = [name for name in read_names(root) or () if _CONTROLLER.fullmatch(name)]
        controllers = self._controllers.kept(found, round_.failures)
        places = [(name, dimm) for name in controllers for dimm in _dimms(root / name)]
        reading = HostEdacReading(
            controllers={
                (name, severity): count
                for name in controllers
                for severity, count in self._errors(inquiry, root / name, (name, ""), "{}_count")
            },
            dimms={
                (name, dimm, _label(root / name / dimm), severity): count
                for name, dimm in self._dimms.kept(places, round_.failures)
                for severity, count in self._errors(inquiry, root / name / dimm, (name, dimm), "dimm_{}_count")
            },
        )
        inquiry.finish()
        return reading

    def _errors(
        self, inquiry: HostInquiry, folder: Path, controller: tuple[str, str], file: str
    ) -> Iterator[tuple[str, int]]:
        """Yield the counts by severity; those that are unreadable are missing."""
        for severity, kind in _SEVERITIES.items():
            count = inquiry.ask(partial(_read_count, folder / file.format(kind)))
            if count is not None:
                yield severity, self._counters.published((*controller, severity), count)


def _read_count(path: Path) -> int | None:
    text = read_text(path, limit=4096)
    if not text:
        # Never empty in a real kernel, but in a recording until the time of the file's first read.
        return None
    try:
        return parse_count(text.strip())
    except ValueError as error:
        raise HostReadFailed("malformed", path, str(error)) from error


def _dimms(controller: Path) -> list[str]:
    # Probed by name, not listed: otherwise a recording would treat all files in the folder as read.
    return [name for name in _DIMM_NAMES if os.path.isdir(f"{controller}/{name}")]  # noqa: PTH112 - hundreds of names


def _label(dimm: Path) -> str:
    try:
        return (read_text(dimm / "dimm_label") or "").strip()
    except HostReadFailed:
        return ""


HOST_EDAC = HostCollector(
    "host_edac", "errors of the host's memory (EDAC)", Tier.SLOW, lambda _config: HostEdacReader().read
)
