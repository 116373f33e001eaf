"""Kernel log messages for GPU failures, inserted cards, and trouble on the host."""

from __future__ import annotations

from typing import Final

from gpu_triage.read.xid.codes import XID_CODES
from gpu_triage_simulator import effects, host_effects
from gpu_triage_simulator.host import SimulatedHost, boots
from gpu_triage_simulator.scenario import Event, Gpu, Scenario

_OFF_THE_BUS: Final = "pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
_UNKNOWN_PROCESS: Final = "pid='<unknown>', name=<unknown>"
_GREETING_MICROSECONDS: Final = 4_000_000


def records(host: SimulatedHost, seconds: float) -> dict[int, str]:
    """Every record of this boot up to a scenario time, by sequence number, in the format of ``/dev/kmsg``.

    Shape: ``level,sequence,microseconds since boot,flags;message``. Sequence numbers continue across boots, for an
    exporter that keeps running during one.
    """
    scenario = host.scenario
    messages: list[tuple[float, str]] = []
    for event in sorted(scenario.events, key=lambda event: event.at):
        if isinstance(event.effect, host_effects.DriverNotLoaded) and event.until is not None:
            messages.append((event.until, _greeting(scenario)))
        if isinstance(event.effect, host_effects.Sxid):
            messages += [(event.at, text) for text in _of_switch(event.effect, scenario)]
        if isinstance(event.effect, host_effects.KernelMessages):
            messages += [(event.at, text) for text in event.effect.texts * event.effect.times]
        for gpu in event.gpus:
            bus_id = scenario.gpus[gpu].slot.bus_id
            messages += [(event.at, text) for text in _messages(event.effect, bus_id.rpartition(".")[0], bus_id)]
            found_at = _found_at(event)
            if found_at is not None:
                messages += [(found_at, text) for text in _found(scenario.card(gpu, found_at))]
    logged = [(at, text) for at, text in sorted(messages, key=lambda message: message[0]) if at <= seconds]
    *_, booted_at = (0.0, *boots(scenario, seconds))
    return {
        1000 + i: f"{4 if 'Xid' in text or 'fallen' in text else 6},{1000 + i},{_stamp(host, at, i)},-;{text}"
        for i, (at, text) in enumerate([(0.0, _greeting(scenario)), *logged])
        if at >= booted_at or i == 0
    }


def _stamp(host: SimulatedHost, at: float, number: int) -> int:
    """Microseconds since boot; record 0, the driver's load message, is from shortly after boot."""
    return round(host.uptime(at) * 1e6) + number if number else _GREETING_MICROSECONDS


def _greeting(scenario: Scenario) -> str:
    return f"NVRM: loading NVIDIA UNIX x86_64 Kernel Module  {scenario.driver.version}"


def _found_at(event: Event) -> int | None:
    """When the kernel finds a new or returned card in the slot; None for other events."""
    if isinstance(event.effect, effects.ReplaceGpu):
        return event.at
    return event.until if isinstance(event.effect, effects.Removed) else None


def _found(gpu: Gpu) -> list[str]:
    """Messages of the PCI core and of the driver about an inserted card."""
    ids = f"[10de:{gpu.model.pci_device_id >> 16:04x}]"
    return [
        f"pci {gpu.slot.bus_id}: {ids} type 00 class 0x{gpu.model.pci_class:06x}",
        f"nvidia {gpu.slot.bus_id}: enabling device (0000 -> 0002)",
    ]


def _of_switch(sxid: host_effects.Sxid, scenario: Scenario) -> list[str]:
    """Messages of the NVSwitch driver about an error, one per line."""
    start = f"nvidia-nvswitch{sxid.switch}: SXid (PCI:{scenario.machine.nvswitch[sxid.switch].bus_id}): {sxid.code}, "
    return [
        f"{start}{'Fatal' if sxid.fatal else 'Non-fatal'}, Link {sxid.link} LTSSM Fault Up",
        f"{start}Severity {int(sxid.fatal)} Engine instance {sxid.link} Sub-engine instance 00",
        f"{start}Data {{0x50610002, 0x10100030, 0x00000000}}",
    ]


def _messages(effect: object, slot: str, bus_id: str) -> list[str]:
    if isinstance(effect, effects.Xid) and effect.reported_by != "nvml":
        detail = _detail(effect) if effect.message is None else effect.message
        return [f"NVRM: Xid (PCI:{slot}): {effect.code}, {detail}"] * effect.times
    if isinstance(effect, effects.Lost) and effect.reported_by != "nvml":
        detail = _OFF_THE_BUS if effect.message is None else effect.message
        return [f"NVRM: Xid (PCI:{slot}): {effect.xid}, {detail}", f"NVRM: GPU {bus_id}: GPU has fallen off the bus."]
    return []


def _detail(xid: effects.Xid) -> str:
    known = XID_CODES.get(xid.code)
    if known is None or not known.fatal_in_text:
        return _UNKNOWN_PROCESS
    word = "Fatal" if xid.fatal else "Nonfatal"
    return f"NETIR_LINK_EVT {word} XC0 i0 Link 00 (0x025001c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)"
