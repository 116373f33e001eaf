"""Pressure stall information: time that tasks of the host lost waiting for CPU, I/O or memory."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gpu_triage.hardware.host_inquiry import HostInquiry
from gpu_triage.hardware.kernel_files import parse_count

if TYPE_CHECKING:
    from gpu_triage.hardware.rounds import HostRound

_MICROSECONDS_PER_SECOND = 1_000_000


@dataclass(frozen=True, slots=True)
class Pressure:
    """Stall time of one resource since boot, in seconds.

    Attributes:
        some_seconds: at least one task waited.
        full_seconds: every task that had work waited; None for CPU, where the whole host has no such state.
    """

    some_seconds: float | None
    full_seconds: float | None


@dataclass(frozen=True, slots=True)
class HostPressureReading:
    """Stall times of the host; None for a resource the kernel keeps none of."""

    cpu: Pressure | None
    io: Pressure | None
    memory: Pressure | None


def read_host_pressure(round_: HostRound) -> HostPressureReading:
    """Stall times by resource; all None on a kernel without PSI.

    Source: ``/proc/pressure/*``, https://docs.kernel.org/accounting/psi.html

    Raises:
        HostReadFailed: there are such files and none can be read or understood.
    """
    inquiry = HostInquiry(round_.failures)
    directory = round_.machine.procfs / "pressure"
    cpu = inquiry.parse(directory / "cpu", parse_pressure)
    reading = HostPressureReading(
        # Since 5.13 the kernel prints "full" of the host's CPUs too, always 0 and documented as undefined.
        cpu=cpu and replace(cpu, full_seconds=None),
        io=inquiry.parse(directory / "io", parse_pressure),
        memory=inquiry.parse(directory / "memory", parse_pressure),
    )
    inquiry.finish()
    return reading


def parse_pressure(text: str) -> Pressure:
    """Stall times of one file; its lines: ``some avg10=0.00 avg60=0.00 avg300=0.00 total=3407564`` (µs).

    Raises:
        ValueError: a line of it looks different, or there is none.
    """
    seconds: dict[str, float] = {}
    for line in text.strip().split("\n"):
        kind, *pairs = line.split() or [""]
        facts = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
        if kind not in ("some", "full") or "total" not in facts:
            raise ValueError(f"{line[:80]!r} is no line of pressure")
        seconds[kind] = parse_count(facts["total"]) / _MICROSECONDS_PER_SECOND
    return Pressure(some_seconds=seconds.get("some"), full_seconds=seconds.get("full"))
