"""Records a host while the exporter runs on it: what was asked and read is what gets recorded, nothing else."""

from __future__ import annotations

import ctypes
import os
import platform
import pwd
import socket
import threading
from collections.abc import Callable
from dataclasses import replace
from importlib import metadata
from typing import Any, Final

from gpu_triage import __version__
from gpu_triage.errors import HostReadFailed
from gpu_triage.machine import Machine, NvmlLibrary
from gpu_triage.nvml.library_file import NAME, refuse_cut_short
from gpu_triage.recording.bundle import MOST_BYTES, NvmlAnswer, Recording
from gpu_triage.recording.calls import EVENTS, GPM_ALLOC, CallKeys, content
from gpu_triage.recording.file_trace import FileTrace
from gpu_triage.recording.masking import Masker
from gpu_triage.xid.kernel_log import KernelLog

_PRIVATE_MEMBERS: Final = frozenset({"clusterUuid", "uuid", "serial", "ibGuid", "chassisSerialNumber"})
_MOST_ANSWERS: Final = 500_000
_FIRST_UID_OF_PEOPLE: Final = 1000


class HostRecorder:
    """Wraps a machine; run the exporter on `machine`, call `snapshot` now and then, and `finish` at the end.

    Args:
        machine: the host.
        masker: what makes the recording anonymous.
        patience_seconds: how long reading one file may take; one that takes longer is left out.
    """

    def __init__(self, machine: Machine, masker: Masker, patience_seconds: float = 2.0) -> None:
        self._masker = masker
        self._real = machine
        self._began = machine.clock.now()
        self._lock = threading.Lock()
        self._answers: list[NvmlAnswer] = []
        self._last: dict[str, tuple[int, tuple[bytes | None, ...]]] = {}
        self._bytes = 0
        self._files = FileTrace({"sys": machine.sysfs, "proc": machine.procfs}, masker, patience_seconds)
        self._nvml = _RecordingNvml(machine.nvml, self._note)
        self.machine = replace(machine, nvml=self._nvml, hotplug=False)

    def snapshot(self) -> None:
        """Read again every file that was read so far, and keep what changed."""
        self._files.snapshot(self._seconds())

    def finish(self) -> Recording:
        """The recording; nothing is recorded any more."""
        self.snapshot()
        self._files.close()
        versions = {
            "gpu_triage": __version__,
            "python": platform.python_version(),
            "nvidia_ml_py": metadata.version("nvidia-ml-py"),
            "kernel": platform.release(),
        }
        with self._lock:
            return Recording(
                versions=versions,
                monotonic=self._began.monotonic,
                wall=self._began.wall,
                seconds=self._seconds(),
                missing=tuple(sorted(self._nvml.missing)),
                answers=tuple(self._answers),
                files=self._files.states(),
                kmsg=self._kernel_log(),
            )

    def _seconds(self) -> float:
        return max(0.0, self._real.clock.now().monotonic - self._began.monotonic)

    def _note(self, function: str, key: str, code: int, outs: tuple[Any, ...], before: list[bytes]) -> None:
        after = [_masked(self._masker, function, out) for out in outs]
        key = self._masker.data(key.encode()).decode()
        answer = (code, tuple(None if new == old else new for new, old in zip(after, before, strict=True)))
        with self._lock:
            size = sum(map(len, after))
            again = self._last.get(key) == answer and not (function in EVENTS and code == 0)
            if again or len(self._answers) >= _MOST_ANSWERS or self._bytes + size > MOST_BYTES:
                return
            self._bytes += size
            self._last[key] = answer
            self._answers.append(NvmlAnswer(self._seconds(), key, *answer))

    def _kernel_log(self) -> str | None:
        """The driver's records; those of other facilities and drivers are none of a recording's business."""
        if self._real.kmsg is None:
            return None
        log = KernelLog(self._real.kmsg)
        lines = []
        try:
            for record in log.read():
                if record.from_kernel and record.text.startswith(b"NVRM:"):
                    text = self._masker.text(record.text.decode("ascii", "replace"))
                    lines.append(f"4,{record.sequence},{round(record.seconds * 1e6)},-;{text}\n")
        except HostReadFailed:
            return None
        finally:
            log.close()
        return "".join(lines)


class _RecordingNvml:
    """The NvmlLibrary seam of a machine that is recorded, and the library that it loads."""

    def __init__(self, base: NvmlLibrary, note: Callable[[str, str, int, tuple[Any, ...], list[bytes]], None]) -> None:
        self.missing: set[str] = set()
        self._base = base
        self._note = note
        self._keys = CallKeys()
        self._library: object | None = None

    def load(self) -> object | None:
        """As NvmlLibrary; None, and so nothing recorded, where there is no library."""
        if self._library is None:
            self._library = self._base.load()
        if self._library is None:
            refuse_cut_short()
            try:
                self._library = ctypes.CDLL(NAME)
            except OSError:
                return None
        return self

    def __getattr__(self, name: str) -> Any:
        """The function of this name.

        Raises:
            AttributeError: the library has none.
        """
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            function = getattr(self._library, name)
        except AttributeError:
            self.missing.add(name)
            raise
        if name == "nvmlErrorString":
            return function

        def call(*arguments: Any) -> int:
            key, outs = self._keys.describe(name, arguments)
            before = [content(out) for out in outs]
            code = int(function(*arguments))
            if name != GPM_ALLOC:
                self._note(name, key, code, outs, before)
            return code

        return call


def _masked(masker: Masker, function: str, out: Any) -> bytes:
    """What the library wrote, less what names a board or a host."""
    raw = content(out)
    if function == "nvmlDeviceGetSerial":
        text, _, rest = raw.partition(b"\0")
        return masker.digits(text) + raw[len(text) :] if rest or text else raw
    if isinstance(out, ctypes.Structure):
        for name, *_ in out._fields_:
            if name in _PRIVATE_MEMBERS:
                member = getattr(type(out), name)
                end = member.offset + member.size
                raw = raw[: member.offset] + masker.noise(raw[member.offset : end]) + raw[end:]
    return masker.data(raw)


def local_masker() -> Masker:
    """A masker with a new key that knows the names of this host and its people."""
    name = socket.gethostname()
    people = [entry.pw_name for entry in pwd.getpwall() if entry.pw_uid >= _FIRST_UID_OF_PEOPLE]
    return Masker(os.urandom(32), hosts=(name, name.split(".")[0]), users=people)
