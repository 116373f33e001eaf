"""The simulated host's sysfs, procfs and kernel log, as files under one directory."""

from __future__ import annotations

import os
import shutil
import threading
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path

from gpu_triage_simulator import kernel_log, procfs, sysfs
from gpu_triage_simulator.host import SimulatedHost, boots


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
        records = kernel_log.records(self._host, seconds)
        news = [f"{record}\n" for number, record in records.items() if number > self._last_record]
        count = len(boots(self._host.scenario, seconds))
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
