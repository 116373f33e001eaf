"""The simulated host's sysfs, procfs and kernel log, as files under one directory."""

import os
import shutil
import threading
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gpu_triage.read.xid.codes import XID_CODES
from gpu_triage_simulator import effects, host_effects, procfs, sysfs
from gpu_triage_simulator.host import SimulatedHost
from gpu_triage_simulator.scenario import Event, Gpu, Scenario


class HostTree:
    """Files that may be opened at any time: each is replaced atomically, and only when it changes.

    Attributes:
        sysfs, procfs: roots of the two file systems.
        kmsg: the kernel log of this boot in the format of ``/dev/kmsg``. A reader that opened it before the boot
            continues with the old file, which also grows.
    """

    def __init__(self, host: SimulatedHost, root: Path) -> None:
        self.sysfs = root / "sys"
        self.procfs = root / "proc"
        self.kmsg = root / "kmsg"
        self._host = host
        self._written: defaultdict[Path, dict[str, str]] = defaultdict(dict)
        self._directories: set[str] = set()
        self._processes: frozenset[int] = frozenset()
        self._segment = -1
        self._unplugged: frozenset[str] = frozenset()
        self._last_record = 0
        self._logged_segment = -1
        self._boots = 0
        self._earlier_logs: list[Path] = []
        self._lock = threading.Lock()
        for path, target in sysfs.links(host.scenario).items():
            self._link(path, target)
        for directory in sysfs.directories(host.scenario):
            self._make_directory(f"{self.sysfs}/{directory}")
        self._write(self.procfs, procfs.own_files(host.scenario))
        for path, target in procfs.own_links(host.scenario).items():
            link = f"{self.procfs}/{path}"
            self._make_directory(os.path.dirname(link))  # noqa: PTH120 - as in _write
            os.symlink(target, link)  # noqa: PTH211 - as in _write
        self.kmsg.touch()
        self.refresh()

    def refresh_log(self) -> None:
        with self._lock:
            self._log(self._host.seconds())

    def refresh(self) -> None:
        with self._lock:
            with self._host.lock:
                seconds = self._host.advance()
                devices = sysfs.files(self._host, seconds)
                unplugged = sysfs.removed(self._host, seconds)
            self._write(self.sysfs, devices)
            self._unplug(unplugged)
            self._write(self.procfs, procfs.files(self._host, seconds))
            segment = self._host.timeline.segment(seconds)
            if segment != self._segment:
                self._refresh_processes(procfs.processes(self._host, seconds))
                self._segment = segment
            self._log(seconds)

    def _unplug(self, removed: frozenset[str]) -> None:
        for path in removed - self._unplugged:
            (self.sysfs / path).unlink()
        for path in self._unplugged - removed:
            self._link(path, sysfs.links(self._host.scenario)[path])
        self._unplugged = removed

    def _link(self, path: str, target: str) -> None:
        link = f"{self.sysfs}/{path}"
        folder = os.path.dirname(path)  # noqa: PTH120 - as in _write
        self._make_directory(f"{self.sysfs}/{folder}")
        self._make_directory(f"{self.sysfs}/{target}")
        os.symlink(f"{'../' * len(Path(folder).parts)}{target}", link)  # noqa: PTH211 - as in _write

    def _refresh_processes(self, processes: dict[int, dict[str, str]]) -> None:
        for pid in self._processes.difference(processes):
            ended = self.procfs / str(pid)
            self._written.pop(ended, None)
            self._directories = {each for each in self._directories if not f"{each}/".startswith(f"{ended}/")}
            shutil.rmtree(ended, ignore_errors=True)
        for pid, files in processes.items():
            self._write(self.procfs / str(pid), files)
        self._processes = frozenset(processes)

    def _log(self, seconds: float) -> None:
        segment = self._host.timeline.segment(seconds)
        if segment == self._logged_segment:
            # The driver only logs when an event starts.
            return
        self._logged_segment = segment
        records = _kernel_log(self._host, seconds)
        news = [f"{record}\n" for number, record in records.items() if number > self._last_record]
        count = len(self._host.boots(seconds))
        if count == self._boots:
            _append(self.kmsg, news)
        else:
            self._boots = count
            self._begin_log([f"{record}\n" for record in records.values()])
        for path in self._earlier_logs:
            _append(path, news)
        self._last_record = max(records)

    def _begin_log(self, lines: list[str]) -> None:
        earlier = self.kmsg.with_name(f"kmsg.{len(self._earlier_logs)}")
        earlier.hardlink_to(self.kmsg)
        self._earlier_logs.append(earlier)
        partial = self.kmsg.with_name("kmsg.partial")
        partial.write_text("".join(lines), encoding="utf-8")
        partial.replace(self.kmsg)

    def _write(self, root: Path, files: Mapping[str, str]) -> None:
        # Strings, not Paths: this handles hundreds of files per second, and Paths took half of the time.
        written = self._written[root]
        for name, text in files.items():
            known = written.get(name)
            if known == text:
                continue
            path = f"{root}/{name}"
            if known is None:
                self._make_directory(os.path.dirname(path))  # noqa: PTH120 - as above
            # Renaming is atomic, so readers never see a partial file.
            partial = f"{path}.partial"
            with open(partial, "w", encoding="utf-8") as file:  # noqa: PTH123 - as above
                file.write(text)
            os.replace(partial, path)  # noqa: PTH105 - as above
            written[name] = text

    def _make_directory(self, path: str) -> None:
        if path not in self._directories:
            os.makedirs(path, exist_ok=True)  # noqa: PTH103 - as in _write
            self._directories.add(path)


def _append(path: Path, lines: list[str]) -> None:
    if lines:
        with path.open("a", encoding="utf-8") as log:
            log.writelines(lines)


_OFF_THE_BUS: Final = "pid='<unknown>', name=<unknown>, GPU has fallen off the bus."
_UNKNOWN_PROCESS: Final = "pid='<unknown>', name=<unknown>"
_GREETING_MICROSECONDS: Final = 4_000_000


def _kernel_log(host: SimulatedHost, seconds: float) -> dict[int, str]:
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
    *_, booted_at = (0.0, *host.boots(seconds))
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
