"""A host whose driver does what a test says while a real process runs on it: `stand_in.c` and the files it needs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from tests.e2e import processes
from tests.e2e.processes import WAIT_SECONDS, Exporter, end, wait_for
from tests.stand_in_library import compile_library

SOURCE = Path(__file__).parent / "stand_in.c"


class StandIn:
    """A compiled driver in a folder, and the control file that every process on it obeys at once.

    Lines that `set` takes; a GPU is its place on the bus, or ``*``; codes are those of nvml.h; a function is a name
    without ``_v2``, and all functions where it is left out:

    - ``gpu 3 hang nvmlDeviceGetUUID``: the call does not return until the line is cleared.
    - ``gpu 3 slow nvmlDeviceGetPowerUsage 2.5``: it takes so many seconds.
    - ``gpu 3 error nvmlDeviceGetPowerUsage 999``: it fails.
    - ``gpu 3 crash nvmlDeviceGetPowerUsage 11``: it sends the process this signal.
    - ``gpu 3 value nvmlDeviceGetTotalEnergyConsumption 18446744073709551614``: it answers these numbers.
    - ``gpu 3 lost``: it is lost; cleared, it is back with the next nvmlInit.
    - ``gpu 3 removed``: as lost, and the next nvmlInit does not count it: later GPUs move up.
    - ``gpu 3 reset``: it must be reset.
    - ``gpu 3 pids 41 42``: processes on it.
    - ``gpu 3 xid 1 79``: event 1 of this host is an Xid 79; numbers rise.
    - ``host hang nvmlInit``, ``host error nvmlDeviceGetCount 999``, …: functions that are asked of no GPU.
    - ``init_seconds 8``: how long nvmlInit takes.
    """

    def __init__(self, folder: Path, gpus: int = 8) -> None:
        self.folder = folder  # holds the library, the control file, sysfs and procfs
        self.gpus = gpus  # how many GPUs are on the bus
        self._lines: list[str] = []
        self._control = folder / "control"
        compile_library(SOURCE, folder)
        for index in range(gpus):
            self._put_on_bus(index)
        (folder / "proc").mkdir()
        self._write()

    @property
    def environment(self) -> Mapping[str, str]:
        """What a process needs to find this driver, beside what this process has."""
        return {**os.environ, "LD_LIBRARY_PATH": str(self.folder), "NVML_STAND_IN": str(self._control)}

    @property
    def arguments(self) -> tuple[str, ...]:
        return ("--path.sysfs", str(self.folder / "sys"))

    def set(self, *lines: str) -> None:
        """Add lines; where several speak of the same call, the last counts."""
        self._lines += lines
        self._write()

    def clear(self, *lines: str) -> None:
        """Take lines back, as they were set; without any, all."""
        self._lines = [line for line in self._lines if lines and line not in lines]
        self._write()

    def replace(self, *lines: str) -> None:
        self._lines = list(lines)
        self._write()

    def journal(self) -> list[str]:
        """What processes did, oldest first.

        ``PID init begins|failed|done``, ``PID shutdown done``, and what crashes with a real library:
        ``PID misuse:dead-handle FUNCTION``, ``PID misuse:uninitialized FUNCTION`` and
        ``PID misuse:in-flight nvmlShutdown``.
        """
        path = Path(f"{self._control}.journal")
        return path.read_text().splitlines() if path.exists() else []

    @contextmanager
    def daemon(self, *arguments: str, log_name: str = "log", python: Path | str = sys.executable) -> Iterator[Daemon]:
        """A ``gpu-triage serve`` on this host, for the length of a ``with`` block; its log is in the folder."""
        log = self.folder / log_name
        command = [str(python), "-m", "gpu_triage", "serve", "--web.listen-address", "127.0.0.1:0"]
        with log.open("wb") as stderr:
            process = subprocess.Popen(
                [*command, *self.arguments, *arguments], stdin=subprocess.DEVNULL, stderr=stderr, env=self.environment
            )
        try:
            yield Daemon(process, log)
        finally:
            self.clear()
            end(process)

    def check(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """``gpu-triage check`` on this host."""
        command = [sys.executable, "-m", "gpu_triage", "check", *self.arguments, *arguments]
        return subprocess.run(command, env=self.environment, capture_output=True, text=True, timeout=60, check=False)

    def _put_on_bus(self, index: int) -> None:
        device = self.folder / "sys" / "bus" / "pci" / "devices" / f"0000:{0x10 + index:02x}:00.0"
        device.mkdir(parents=True)
        (device / "vendor").write_text("0x10de\n")
        (device / "class").write_text("0x030200\n")

    def _write(self) -> None:
        new = self.folder / "control.new"
        new.write_text("".join(f"{line}\n" for line in (f"gpus {self.gpus}", *self._lines)))
        new.rename(self._control)


def up(page: str) -> list[str]:
    return sorted(re.findall(r'^gpu_up\{gpu="([0-9]+)".* 1(?:\.0)?$', page, re.MULTILINE))


class Daemon:
    """A daemon that was just started."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self.process = process  # its process
        self.log = log  # its log

    @cached_property
    def _running(self) -> Exporter:
        return Exporter(self.process, processes.listening(self.process, self.log), self.log, 5.0)

    def get(self, path: str = "/metrics") -> str:
        """The body of an answer, as text.

        Raises:
            OSError: nobody answers, or not in five seconds.
        """
        return self.ask(path)[2].decode()

    def ask(self, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
        return self._running.get(path, **headers)

    def stop(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Send it a signal, and wait until it has ended as this signal ends it."""
        self.process.send_signal(number)
        assert self.process.wait(WAIT_SECONDS) == (-number if number == signal.SIGKILL else 0), self.log.read_text()

    def wait_for(self, what: Callable[[str], object], seconds: float) -> str:
        """The first page of which it is true.

        Raises:
            AssertionError: there is none in so many seconds.
        """
        limit = time.monotonic() + seconds
        while not what(page := self.get()):
            assert time.monotonic() < limit, page
            time.sleep(0.1)
        return page


class Disk:
    """A disk on which each fsync takes as long as a test says.

    Attributes:
        state: the state directory on it.
        recordings: the flight recorder's directory on it.
    """

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.state = folder / "state"
        self.recordings = folder / "recordings"
        self.state.mkdir()
        self._speed = folder / "slow-disk"
        self.takes(0.0)
        compile_library(Path(__file__).with_name("slow_disk.c"), folder, name="slow_disk.so")
        monkeypatch.setenv("LD_PRELOAD", str(folder / "slow_disk.so"))
        monkeypatch.setenv("SLOW_DISK", str(self._speed))

    @property
    def flags(self) -> tuple[str, ...]:
        return ("--state.directory", str(self.state))

    def takes(self, seconds: float) -> None:
        self._speed.write_text(str(seconds))

    def memory(self) -> dict[str, Any]:
        """What the incidents' file holds; empty while there is none."""
        path = self.state / "incidents.json"
        found: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
        return found

    def incidents(self) -> set[tuple[str, str]]:
        return {(each["kind"], each["slot"]) for each in self.memory().get("incidents", [])}

    def partial(self) -> list[str]:
        """Names of files that were not finished."""
        return sorted(each.name for each in self.state.iterdir() if each.name.endswith(".new"))


def slot(gpu: int) -> str:
    return f"0000:{0x10 + gpu:02x}:00.0"


def listening(daemon: Daemon) -> None:
    """Wait until all GPUs are sampled and NVML delivers Xids: the driver tells nobody of an earlier one."""
    daemon.wait_for(
        lambda page: len(up(page)) == 4 and 'gpu_exporter_xid_source_up{source="nvml"} 1' in page, WAIT_SECONDS
    )


def settled(daemon: Daemon, disk: Disk) -> None:
    """Wait until GPUs and Xids are read, and the incidents have a file."""
    listening(daemon)
    wait_for(disk.memory)
