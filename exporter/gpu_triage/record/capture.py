"""Captures what a machine answers while the exporter runs on it: only what the exporter reads is recorded."""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from gpu_triage.driver.kernel import files
from gpu_triage.errors import HostReadFailed
from gpu_triage.machine import Machine, Moment
from gpu_triage.record.calls import RecordingNvml, Spans
from gpu_triage.record.recording import ABSENT, FAILED, FOUND
from gpu_triage.record.ring import KEPT_SECONDS, MOST_BYTES, Answer, Ring, RingBlock

_NEVER: Final = frozenset({"cmdline", "environ", "maps", "smaps", "numa_maps", "mem"})
"""Command lines, environments and memory are never recorded, whichever code reads them."""


@dataclass(frozen=True, slots=True)
class Captured:
    """What a host answered, before masking."""

    began: Moment  # start of the first block
    seconds: float  # duration
    blocks: tuple[RingBlock, ...]  # of the ring; keys of files are ``QUESTION PATH``, those of NVML start with ``[``
    private: Mapping[str, tuple[Spans, ...]]  # position of identifying data in each output buffer, by key
    kmsg: Path | None  # path of the kernel log; None if it must not be read


class Capture:
    """Captures what the host answers to an exporter that runs on `self.machine`, from creation until it is closed."""

    def __init__(self, machine: Machine, kept_seconds: float = KEPT_SECONDS, most_bytes: int = MOST_BYTES) -> None:
        self.ring = Ring(lambda: machine.clock.now().monotonic, kept_seconds, most_bytes)
        self._nvml = RecordingNvml(machine.nvml, self.ring.note)
        self.machine = replace(machine, nvml=self._nvml)  # the same host, with recording enabled
        self._hooks = ExitStack()
        self._hooks.enter_context(files.hooked({"sys": machine.sysfs, "proc": machine.procfs}, self._asked))

    def captured(self) -> Captured:
        now, blocks = self.machine.clock.now(), self.ring.content()
        lasted = now.monotonic - blocks[0].began if blocks else 0.0
        began = Moment(now.monotonic - lasted, now.wall - lasted)
        return Captured(began, lasted, blocks, dict(self._nvml.private), self.machine.kmsg)

    def close(self) -> None:
        """Stop recording files. Calls of NVML are still recorded, but end with the exporter."""
        self._hooks.close()

    def _asked(self, question: files.Question, path: str, answer: files.Answer) -> bytes | None:
        try:
            content = answer()
        except HostReadFailed as failed:
            self._note(question, path, FAILED, failed.reason.encode())
            raise
        self._note(question, path, *((ABSENT,) if content is None else (FOUND, content)))
        return content

    def _note(self, question: files.Question, path: str, code: int, *outs: bytes) -> None:
        if path.rpartition("/")[2] not in _NEVER:
            of_process = path.startswith("proc/") and path[5:6].isdigit()
            self.ring.note(f"{question} {path}", Answer(code, outs, tuple(map(len, outs))), passing=of_process)
