"""A host whose driver does what a test says while a real process runs on it: `stand_in.c` and the files it needs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from tests.e2e.processes import Exporter, end, listening
from tests.stand_in_library import compile_library

SOURCE = Path(__file__).parent / "stand_in.c"
FIRST_BUS = 0x10
ANSWER_SECONDS = 5.0


class StandIn:
    """A compiled driver in a folder, and the control file that every process on it obeys at once.

    Lines that `set` takes; a GPU is its place on the bus, or ``*``; codes are those of nvml.h; a function is a name
    without ``_v2``, and all functions where it is left out:

    - ``gpu 3 hang nvmlDeviceGetUUID``: the call does not return until the line is cleared.
    - ``gpu 3 slow nvmlDeviceGetPowerUsage 2.5``: it takes so many seconds.
    - ``gpu 3 error nvmlDeviceGetPowerUsage 999``: it fails.
    - ``gpu 3 crash nvmlDeviceGetPowerUsage 11``: it sends the process this signal.
    - ``gpu 3 value nvmlDeviceGetTotalEnergyConsumption 18446744073709551614``: it answers this, numbers or text.
    - ``gpu 3 value field:230 3 1000``: a field of nvmlDeviceGetFieldValues, as value type and value.
    - ``gpu 3 lost``: it is lost; cleared, it is back with the next nvmlInit.
    - ``gpu 3 removed``: as lost, and the next nvmlInit does not count it: later GPUs move up.
    - ``gpu 3 reset``: it must be reset.
    - ``gpu 3 pids 41 42``: processes on it.
    - ``gpu 3 xid 1 79``: event 1 of this host is an Xid 79; numbers rise.
    - ``host hang nvmlInit``, ``host error nvmlDeviceGetCount 999``, …: functions that are asked of no GPU.
    - ``init_seconds 8``: how long nvmlInit takes.
    - ``unloaded``: the driver is not loaded.
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

    def _put_on_bus(self, index: int) -> None:
        device = self.folder / "sys" / "bus" / "pci" / "devices" / f"0000:{FIRST_BUS + index:02x}:00.0"
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
        return Exporter(self.process, listening(self.process, self.log), self.log, ANSWER_SECONDS)

    def get(self, path: str = "/metrics") -> str:
        """The body of an answer, as text.

        Raises:
            OSError: nobody answers, or not in five seconds.
        """
        return self.get_bytes(path, {}).decode()

    def ask(self, path: str, **headers: str) -> tuple[int, dict[str, str], bytes]:
        return self._running.get(path, **headers)

    def get_bytes(self, path: str, headers: Mapping[str, str]) -> bytes:
        """The body of an answer as it was sent, compressed if the headers accept that."""
        return self._running.get(path, **headers)[2]

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
