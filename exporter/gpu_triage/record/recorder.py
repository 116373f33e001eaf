"""Records a host while the exporter runs on it: only what the exporter queries and reads is recorded."""

from __future__ import annotations

import os
import platform
import pwd
import socket
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import chain, repeat
from pathlib import Path
from typing import Final

from gpu_triage import __version__
from gpu_triage.errors import HostReadFailed
from gpu_triage.machine import Machine
from gpu_triage.read.host.device_messages import parse_device_message, parse_device_over
from gpu_triage.read.host.driver_messages import parse_driver_message
from gpu_triage.read.host.kernel_messages import parse_host_message, parse_kill_order, parse_trouble_over
from gpu_triage.read.xid.kernel_log import KernelLog
from gpu_triage.read.xid.xid_events import parse_sxid
from gpu_triage.record.calls import EVENTS, function_of
from gpu_triage.record.file_trace import FileTrace
from gpu_triage.record.library import Answer, RecordingNvml, Spans
from gpu_triage.record.masking import Masker
from gpu_triage.record.recording import MOST_BYTES, NvmlAnswer, Recording

SERIAL: Final = "nvmlDeviceGetSerial"

_MOST_ANSWERS: Final = 500_000
_FIRST_UID_OF_PEOPLE: Final = 1000


class HostRecorder:
    """Wraps a machine; run the exporter on `machine`, call `snapshot` periodically, and `finish` at the end.

    A file that takes longer than `patience_seconds` to read is skipped.
    """

    def __init__(self, machine: Machine, masker: Masker, patience_seconds: float = 2.0) -> None:
        self._masker = masker
        self._real = machine
        self._began = machine.clock.now()
        self._lock = threading.Lock()
        self._answers: list[NvmlAnswer] = []
        self._last: dict[str, Answer] = {}
        self._bytes = 0
        self._files = FileTrace({"sys": machine.sysfs, "proc": machine.procfs}, masker.text, patience_seconds)
        self._nvml = RecordingNvml(machine.nvml, self._note)
        self.machine = replace(machine, nvml=self._nvml, hotplug=False)

    def snapshot(self) -> None:
        """Reread all files read so far, and keep what changed."""
        self._files.snapshot(self._seconds())

    def finish(self) -> Recording:
        """Stop recording and return the recording."""
        self.snapshot()
        self._files.close()
        with self._lock:
            return Recording(
                versions=versions_here(),
                monotonic=self._began.monotonic,
                wall=self._began.wall,
                seconds=self._seconds(),
                missing=tuple(sorted(self._nvml.missing)),
                answers=tuple(self._answers),
                files=self._files.states(),
                kmsg=None if self._real.kmsg is None else kernel_records(self._real.kmsg, self._masker),
            )

    def _seconds(self) -> float:
        return max(0.0, self._real.clock.now().monotonic - self._began.monotonic)

    def _note(self, key: str, answer: Answer) -> None:
        with self._lock:
            size = sum(answer.sizes)
            again = self._last.get(key) == answer and not (answer.code == 0 and function_of(key) in EVENTS)
            if again or len(self._answers) >= _MOST_ANSWERS or self._bytes + size > MOST_BYTES:
                return
            self._bytes += size
            self._last[key] = answer
            whole = [
                None if raw is None else raw.ljust(size, b"\0")
                for raw, size in zip(answer.outs, answer.sizes, strict=True)
            ]
            outs = masked_outs(self._masker, key, whole, self._nvml.private.get(key, ()))
            key = self._masker.data(key.encode()).decode()
            self._answers.append(NvmlAnswer(self._seconds(), key, answer.code, outs))


def masked_outs(
    masker: Masker, key: str, outs: Sequence[bytes | None], private: Sequence[Spans]
) -> tuple[bytes | None, ...]:
    """Anonymize the output buffers of a call; `private` as in RecordingNvml."""
    function = function_of(key)
    spans = chain(private, repeat(()))
    return tuple(raw and _masked(masker, function, raw, own) for raw, own in zip(outs, spans, strict=False))


def _masked(masker: Masker, function: str, raw: bytes, private: Spans) -> bytes:
    if function == SERIAL:
        text, _, rest = raw.partition(b"\0")
        return masker.digits(text) + raw[len(text) :] if rest or text else raw
    for offset, end in private:
        raw = raw[:offset] + masker.noise(raw[offset:end]) + raw[end:]
    return masker.data(raw)


def versions_here() -> dict[str, str]:
    """Versions of the recording software."""
    from importlib import metadata  # noqa: PLC0415 - larger than this whole module, and used once

    return {
        "gpu_triage": __version__,
        "python": platform.python_version(),
        "nvidia_ml_py": metadata.version("nvidia-ml-py"),
        "kernel": platform.release(),
    }


def kernel_records(kmsg: Path, masker: Masker) -> str | None:
    """Kernel log records about GPUs, NVSwitches and host problems, masked; all others are dropped.

    None if the log is unreadable.
    """
    log = KernelLog(kmsg)
    lines = []
    try:
        for record in log.read():
            text = record.text.decode("ascii", "replace")
            if record.from_kernel and _is_judged(text):
                lines.append(f"4,{record.sequence},{round(record.seconds * 1e6)},-;{masker.text(text)}\n")
    except HostReadFailed:
        return None
    finally:
        log.close()
    return "".join(lines)


def _is_judged(text: str) -> bool:
    if text.startswith("NVRM:"):
        return True
    parsers: tuple[Callable[[str], object | None], ...] = (
        parse_sxid,
        parse_driver_message,
        parse_host_message,
        parse_device_message,
        parse_trouble_over,
        parse_device_over,
        parse_kill_order,
    )
    return any(parse(text) is not None for parse in parsers)


def local_masker() -> Masker:
    """Create a masker with a new key for this host's name and users."""
    name = socket.gethostname()
    people = [entry.pw_name for entry in pwd.getpwall() if entry.pw_uid >= _FIRST_UID_OF_PEOPLE]
    return Masker(os.urandom(32), hosts=(name, name.split(".")[0]), users=people)
