"""Parser for ``nvidia-smi -q``: complete, in extracts (``-d``), and as pasted by users."""

from __future__ import annotations

import re
from typing import Final

from gpu_triage.cli.offline.about import About
from gpu_triage.cli.offline.pasted import command_of
from gpu_triage.cli.offline.smi_layout import PROCESSES, Layout
from gpu_triage.cli.offline.smi_report import LONGEST_VALUE, RawGpu, RawProcess, SmiReport

_LONGEST_LINE: Final = 300
_MOST_FOREIGN: Final = 400
"""Consecutive unrelated lines that end the output; fewer are taken for kernel messages printed in between."""

_GPU: Final = re.compile(r"GPU\s?([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s*$")
_HEAD: Final = "NVSMI LOG"
_SECTION: Final = re.compile(r"[A-Z][A-Za-z0-9 /()-]{2,40}")
LONGEST_SECTION: Final = 60
_OTHER_GPU: Final = re.compile(r"GPU\b(?!.*: ).*\d")
_ENDS: Final = ("____", "####", "+---", "<?xml", "<nvidia_smi_log", "*** ", "```", "~~~")
_OWN: Final = frozenset(
    {"timestamp", "driver version", "cuda version", "kmd version", "cuda umd version", "attached gpus"}
)
_HEADLESS: Final = frozenset(
    {
        "clocks throttle reasons",
        "clocks event reasons",
        "clocks event reasons counters",
        "gpu power readings",
        "power readings",
        "fb memory usage",
        "ecc errors",
        "remapped rows",
        "retired pages",
        "gpu link info",
        "vgpu software licensed product",
        "grid licensed product",
        "max clocks",
    }
)
"""Sections that only nvidia-smi prints, to recognize the fragments that ``nvidia-smi -q | grep -A8 …`` leaves."""


class SmiTextParser:
    """Parses one output line by line."""

    ABOUT: Final = About(
        "nvidia-smi -q",
        "drivers 390 to 610; also parts of it (`-d`, or what `grep` leaves) and text that lost its indentation",
        "driver, memory errors and repairs, recovery action, fabric, temperatures, limits, throttle reasons, clocks, "
        "PCIe link and replays, processes, vGPU license, settings; two of them, a minute or more apart, also rates",
    )

    def __init__(self) -> None:
        self.report = SmiReport(self.ABOUT.kind)
        self._margin = 0
        self._gpu: RawGpu | None = None
        self._layout = Layout()
        self._foreign = 0
        self._is_headless = False
        self._is_flat = False

    @classmethod
    def starting(cls, line: str) -> SmiTextParser | None:
        """A parser that has consumed this line, if an output starts with it."""
        text = line.strip()
        is_gpu, is_section = _GPU.match(text) is not None, len(text) < LONGEST_SECTION and text.lower() in _HEADLESS
        if not (_HEAD in text or is_gpu or is_section):
            return None
        parser = cls()
        parser._margin = len(line.expandtabs()) - len(line.expandtabs().lstrip())
        if is_section:
            parser._is_headless = True
            parser._begin(parser.report.add_gpu())
        if _HEAD not in text:
            parser.feed(line)
        return parser

    def feed(self, line: str) -> bool:
        """Parse a line; False if the output ended before it."""
        if not line or line.isspace():
            return True
        line = line[:_LONGEST_LINE].expandtabs()
        text = line.strip()
        if self._is_headless:
            return self._feed_fragment(text)
        indent = len(line) - len(line.lstrip()) - self._margin
        if indent <= 0:
            return self._feed_at_margin(text)
        self._feed_fact(indent, text)
        return True

    def _feed_fragment(self, text: str) -> bool:
        """Parse a line of a fragment; ``grep -A`` separates fragments with ``--``."""
        label, colon, _ = _parts(text)
        if text == "--":
            return True
        if _HEAD in text or _GPU.match(text) or text.startswith(_ENDS):
            return False
        if " :" not in text and not self._layout.belongs(label, is_section=not colon):
            return False
        if label in _HEADLESS and self._has(label):
            # A repeated section belongs to the next GPU.
            self._begin(self.report.add_gpu())
        self._feed_fact(0, text)
        return True

    def _feed_at_margin(self, text: str) -> bool:
        gpu = _GPU.match(text)
        if gpu is not None:
            self._begin(self.report.add_gpu(gpu[1]))
            return True
        label, colon, value = _parts(text)
        if self._gpu is None and colon:
            self.report.note(label, value[:LONGEST_VALUE])
        if label in _OWN:
            return True
        if text.startswith(_ENDS) or _HEAD in text or command_of(text):
            return False
        if _OTHER_GPU.match(text):
            # A GPU heading in an unknown format: the following lines don't belong to the previous GPU.
            self.report.miss(text)
            self._begin(RawGpu(""))
            return True
        if self._gpu is not None and self._is_fact(text, label, is_section=not colon):
            self._feed_fact(0, text)
            return True
        self._foreign += 1
        return self._foreign <= _MOST_FOREIGN

    def _is_fact(self, text: str, label: str, *, is_section: bool) -> bool:
        """Whether an unindented line is a fact that lost its indentation."""
        if not is_section and " :" not in text:
            return False
        if self._layout.belongs(label, is_section=is_section):
            self._is_flat = True
            return True
        return self._is_flat and (not is_section or _SECTION.fullmatch(text) is not None)

    def _begin(self, gpu: RawGpu) -> None:
        self._gpu, self._layout, self._foreign = gpu, Layout(), 0

    def _feed_fact(self, indent: int, text: str) -> None:
        label, colon, value = _parts(text)
        if self._gpu is None or not label:
            return
        self._foreign = 0
        path = self._layout.path(indent, label, is_section=not colon)
        if path[:1] == PROCESSES:
            self._note_process(label, value, is_section=not colon)
        elif colon:
            self._gpu.note("/".join(path), value)

    def _has(self, section: str) -> bool:
        return self._gpu is not None and any(path.startswith(f"{section}/") for path in self._gpu.facts)

    def _note_process(self, label: str, value: str, *, is_section: bool) -> None:
        assert self._gpu is not None  # noqa: S101 - checked by the caller
        if label == "process id":
            self._gpu.lists_processes = True
            self._gpu.add_process(RawProcess(pid=value))
        elif label == PROCESSES[0]:
            # Without a value or any entries, the list was truncated.
            self._gpu.lists_processes = not is_section and value.lower() != "n/a"
        elif self._gpu.processes:
            _describe(self._gpu.processes[-1], label, value[:LONGEST_VALUE])


def _parts(text: str) -> tuple[str, bool, str]:
    """Label in lower case, whether a value follows, and the value."""
    name, colon, value = text.partition(":")
    return name.strip().lower(), bool(colon), value.strip()


def _describe(process: RawProcess, label: str, value: str) -> None:
    match label:
        case "type":
            process.kind = value
        case "name":
            process.name = value
        case "used gpu memory":
            process.memory = value
