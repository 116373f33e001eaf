"""The simulated host's sysfs, procfs and kernel log, as files under one directory."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

from gpu_triage.simulator import kernel_log, procfs, sysfs
from gpu_triage.simulator.host import SimulatedHost


class HostTree:
    """Files that a reader may open at any time: each is replaced in whole, and only when it changes.

    Attributes:
        sysfs, procfs: roots of the two file systems.
        kmsg: the kernel log in the format of ``/dev/kmsg``; it only grows.
    """

    def __init__(self, host: SimulatedHost, root: Path) -> None:
        self.sysfs = root / "sys"
        self.procfs = root / "proc"
        self.kmsg = root / "kmsg"
        self._host = host
        self._written: dict[Path, str] = {}
        self._processes: set[int] = set()
        self._unplugged: frozenset[str] = frozenset()
        self._logged = 0
        self._lock = threading.Lock()
        for path, target in sysfs.links(host.scenario).items():
            self._link(path, target)
        for directory in sysfs.directories(host.scenario):
            (self.sysfs / directory).mkdir(parents=True, exist_ok=True)
        self.kmsg.touch()
        self.refresh()

    def refresh(self) -> None:
        """Bring every file to the present."""
        with self._lock:
            with self._host.lock:
                seconds = self._host.advance()
                system = sysfs.files(self._host, seconds)
                removed = sysfs.removed(self._host)
                processes = procfs.processes(self._host, seconds)
            for path, text in system.items():
                self._write(self.sysfs / path, text)
            self._unplug(removed)
            for path, text in procfs.files(self._host, seconds).items():
                self._write(self.procfs / path, text)
            self._refresh_processes(processes)
            self._log(seconds)

    def _unplug(self, removed: frozenset[str]) -> None:
        for path in removed - self._unplugged:
            (self.sysfs / path).unlink()
        for path in self._unplugged - removed:
            self._link(path, sysfs.links(self._host.scenario)[path])
        self._unplugged = removed

    def _link(self, path: str, target: str) -> None:
        link = self.sysfs / path
        link.parent.mkdir(parents=True, exist_ok=True)
        (self.sysfs / target).mkdir(parents=True, exist_ok=True)
        link.symlink_to(os.path.relpath(self.sysfs / target, link.parent))

    def _refresh_processes(self, processes: dict[int, dict[str, str]]) -> None:
        for pid in self._processes - set(processes):
            directory = self.procfs / str(pid)
            for path in [path for path in self._written if path.parent == directory]:
                del self._written[path]
            shutil.rmtree(directory, ignore_errors=True)
        for pid, files in processes.items():
            for name, text in files.items():
                self._write(self.procfs / str(pid) / name, text)
        self._processes = set(processes)

    def _log(self, seconds: float) -> None:
        records = kernel_log.records(self._host, seconds)
        if len(records) > self._logged:
            with self.kmsg.open("a", encoding="utf-8") as log:
                log.writelines(f"{record}\n" for record in records[self._logged :])
            self._logged = len(records)

    def _write(self, path: Path, text: str) -> None:
        if self._written.get(path) == text:
            return
        if path not in self._written:
            path.parent.mkdir(parents=True, exist_ok=True)
        # Renaming is atomic: nobody ever reads half a file.
        partial = path.with_name(f".{path.name}.partial")
        partial.write_text(text, encoding="utf-8")
        partial.replace(path)
        self._written[path] = text
