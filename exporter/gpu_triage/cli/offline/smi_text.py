"""Parsers for the whole output of ``nvidia-smi -q``: as text, in extracts (``-d``), as pasted, and as XML."""

import re
from collections import Counter
from html import unescape
from typing import Final

from gpu_triage.cli.offline.lines import command_of
from gpu_triage.cli.offline.smi_facts import HOST_FACTS, LONGEST_VALUE, WORDS, RawGpu, RawProcess, SmiParser
from gpu_triage.cli.offline.smi_gpu import known_names

Path = tuple[str, ...]

_DEEPEST: Final = 8  # deeper than in any output
PROCESSES: Final = ("processes",)

_NAMES, _OPEN_SECTIONS = known_names()
_WHOLE: Final = {
    *(tuple(name.rstrip("/").split("/")) for name in (*_NAMES, *_OPEN_SECTIONS)),
    PROCESSES,
    *((*PROCESSES, label) for label in ("process id", "type", "name", "used gpu memory")),
}
_KNOWN: Final = frozenset(path[:end] for path in _WHOLE for end in range(1, len(path) + 1))
_ALSO_ELSEWHERE: Final = frozenset({"aggregate", "free", "reserved"})
"""Labels that also occur in sections that are not read: BAR1 memory has a free part, too."""
_ENDS_OF_PATHS: Final = Counter(path[-1] for path in _KNOWN)
_ALONE: Final = {path[-1]: path for path in _WHOLE if _ENDS_OF_PATHS[path[-1]] == 1 and path[-1] not in _ALSO_ELSEWHERE}
"""The path of each label that only one section has."""


class Layout:
    """Finds the path of each line of a GPU; a label that lost its indentation goes to the last section that has it."""

    def __init__(self) -> None:
        self._stack: list[tuple[int, str]] = []
        self._context: Path = ()
        self._is_flat = True

    def path(self, indent: int, label: str, *, is_section: bool) -> Path:
        """The path of a label at this column; `is_section`: the label has no value."""
        while self._stack and self._stack[-1][0] >= indent:
            self._stack.pop()
        if len(self._stack) < _DEEPEST:
            self._stack.append((indent, label))
        path = tuple(each for _, each in self._stack)
        self._is_flat = self._is_flat and len(path) == 1
        if len(path) == 1:
            path = self._without_indentation(label, is_section=is_section)
        if is_section:
            self._context = path
        elif len(path) > 1 or path in _KNOWN:
            self._context = path[:-1]
        return path

    def belongs(self, label: str, *, is_section: bool) -> bool:
        """Whether an unindented label belongs to this GPU and lost its indentation."""
        return (label,) in _KNOWN or len(self._without_indentation(label, is_section=is_section)) > 1

    def _without_indentation(self, label: str, *, is_section: bool) -> Path:
        bases = [self._context[:end] for end in range(len(self._context), 0, -1)]
        for base in (*bases, ()):
            if (*base, label) in _KNOWN:
                return (*base, label)
        for base in bases:
            # In sections that accept any name, such as "Volatile", a new section ends the previous sibling.
            section = "/".join(base) + "/"
            if section in _OPEN_SECTIONS or (not is_section and section.startswith(_OPEN_SECTIONS)):
                return (*base, label)
        return _ALONE.get(label, (label,)) if self._is_flat and not is_section else (label,)


def _is_reason(text: str) -> bool:
    """Whether a line is a throttle reason, of which grep has removed the heading."""
    label = _parts(text)[0]
    return label.endswith((" slowdown", " power cap")) and (label,) in _KNOWN


_MOST_FOREIGN: Final = 400
"""Consecutive unrelated lines that end the output; fewer are taken for kernel messages printed in between."""

_GPU: Final = re.compile(r"GPU\s?([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])\s*$")
_HEAD: Final = "NVSMI LOG"
_FACT: Final = re.compile(r"[A-Z][\w /().-]{2,40}? +: \S")
_SECTION: Final = re.compile(r"[A-Z][A-Za-z0-9 /()-]{2,40}")
LONGEST_SECTION: Final = 60
_OTHER_GPU: Final = re.compile(r"GPU\b(?!.*: ).*\d")
_ENDS: Final = ("____", "####", "+---", "<?xml", "<nvidia_smi_log", "*** ", "```", "~~~")
_HEADLESS: Final = frozenset(WORDS["headless"])


class SmiTextParser(SmiParser):
    KIND = "nvidia-smi -q"

    def __init__(self, before: str) -> None:
        super().__init__(before)
        self._margin = 0
        self._layout = Layout()
        self._foreign = 0
        self._is_headless = False
        self._is_flat = False

    def starts(self, line: str) -> bool:
        text = line.strip()
        is_section = len(text) < LONGEST_SECTION and text.lower() in _HEADLESS
        # An output that begins in the middle of a GPU, after its address.
        if line[:4] == "    " and _FACT.match(text) and (_parts(text)[0] in _ALONE or _is_reason(text)):
            is_section = True
        self._margin = _indent(line.expandtabs())
        if is_section or _GPU.match(text):
            self.feed(line)
            return True
        return _HEAD in text

    def feed(self, line: str) -> bool:
        if not line or line.isspace():
            return True
        line = line.expandtabs()
        text = line.strip()
        if self.gpu is None and (text.lower() in _HEADLESS or _is_reason(text)):
            self._is_headless = self._is_flat = True
            self._begin(self.report.add_gpu())
        indent = 0 if self._is_headless else _indent(line) - self._margin
        if indent <= 0:
            return self._feed_at_margin(text, _indent(line))
        self._feed_fact(indent, text)
        return True

    def _feed_at_margin(self, text: str, margin: int) -> bool:
        if (gpu := _GPU.match(text)) is not None:
            if self._is_headless:
                # The output began in the middle; from here on it is whole.
                self._is_headless, self._is_flat, self._margin = False, False, margin
            self._begin(self.report.add_gpu(gpu[1]))
            return True
        label, colon, value = _parts(text)
        if self.gpu is None and colon:
            self.report.note(label, value[:LONGEST_VALUE])
        if label in HOST_FACTS or text == "--":  # which ``grep -A`` prints between fragments
            return True
        if text.startswith(_ENDS) or _HEAD in text or command_of(text):
            return False
        if _OTHER_GPU.match(text):
            # A GPU heading in an unknown format: the following lines don't belong to the previous GPU.
            self.report.miss(text)
            self._begin(RawGpu())
            return True
        if self.gpu is not None and self._is_fact(text, label, is_section=not colon):
            if self._is_headless and _is_repeated(label, self.gpu):
                self._begin(self.report.add_gpu())
            self._feed_fact(0, text)
            return True
        self._foreign += 1
        return self._foreign <= _MOST_FOREIGN and not self._is_headless

    def _is_fact(self, text: str, label: str, *, is_section: bool) -> bool:
        """Whether an unindented line is a fact that lost its indentation."""
        if not is_section and " :" not in text:
            return False
        if self._layout.belongs(label, is_section=is_section):
            self._is_flat = True
            return True
        return self._is_flat and (not is_section or _SECTION.fullmatch(text) is not None)

    def _begin(self, gpu: RawGpu) -> None:
        self.gpu, self._layout, self._foreign = gpu, Layout(), 0

    def _feed_fact(self, indent: int, text: str) -> None:
        label, colon, value = _parts(text)
        if self.gpu is None or not label:
            return
        self._foreign = 0
        path = self._layout.path(indent, label, is_section=not colon)
        if path[:1] != PROCESSES:
            if colon:
                self.gpu.note("/".join(path), value)
        elif label == "process id":
            self.gpu.lists_processes = True
            self.gpu.add_process(RawProcess(pid=value))
        elif label == PROCESSES[0]:
            # Without a value or any entries, the list was truncated.
            self.gpu.lists_processes = colon and value.lower() != "n/a"
        elif self.gpu.processes:
            self.gpu.processes[-1].describe(label, value)


def _is_repeated(label: str, gpu: RawGpu) -> bool:
    """Whether a GPU already has this fact or section, so that it belongs to the next one."""
    is_section = label in _HEADLESS and any(path.startswith(f"{label}/") for path in gpu.facts)
    return is_section or (label in gpu.facts and (label,) in _KNOWN)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _parts(text: str) -> tuple[str, bool, str]:
    """Label in lower case, whether a value follows, and the value."""
    name, colon, value = text.partition(":")
    return name.strip().lower(), bool(colon), value.strip()


_TOKEN: Final = re.compile(r"<(/?)([A-Za-z_][\w.]*)([^<>]*)>|([^<]+)|<")
_ID: Final = re.compile(r'\bid="([^"]{1,40})"')
_DEEPEST_ELEMENT: Final = 12
_SKIPPED: Final = frozenset({"supported_clocks", "accounted_processes", "mig_devices"})


class SmiXmlParser(SmiParser):
    START: Final = "<nvidia_smi_log"
    KIND = "nvidia-smi -q -x"

    def __init__(self, before: str) -> None:
        super().__init__(before)
        self._path: list[str] = []

    def starts(self, line: str) -> bool:
        return self.START in line and self.feed(line)

    def feed(self, line: str) -> bool:
        if self.report.is_whole:
            return False
        for token in _TOKEN.finditer(line):
            closes, tag, attributes, text = token.groups()
            if tag is None:
                if text and self._path and _SKIPPED.isdisjoint(self._path) and not text.isspace():
                    self._text(unescape(text.strip()[:LONGEST_VALUE]))
            elif closes:
                if tag == "nvidia_smi_log":
                    self.report.is_whole = True
                    return True
                self._close(tag)
            elif not attributes.endswith("/"):
                self._open(tag, attributes)
        return True

    def _open(self, tag: str, attributes: str) -> None:
        if tag == "gpu":
            bus_id = _ID.search(attributes)
            self.gpu = self.report.add_gpu("" if bus_id is None else bus_id[1])
            self._path = []
        elif tag != "nvidia_smi_log":
            if tag == "processes":
                self._path = []  # a section of the GPU, even if the end of the one before is missing
            if len(self._path) < _DEEPEST_ELEMENT:
                self._path.append(tag)
            if self.gpu is not None and tag == "process_info":
                self.gpu.add_process(RawProcess())

    def _close(self, tag: str) -> None:
        if tag == "gpu":
            self.gpu, self._path = None, []
        elif tag in self._path:
            if self.gpu is not None and tag in ("process_info", "processes"):
                # Only set here, because a truncated list may or may not be empty.
                self.gpu.lists_processes = True
            # Lines may be missing, so close any inner elements that are still open.
            while self._path.pop() != tag:
                pass

    def _text(self, value: str) -> None:
        if self.gpu is None:
            if len(self._path) == 1:
                self.report.note(self._path[0], value)
        elif self._path[0] != "processes":
            self.gpu.note("/".join(self._path).replace("_", " "), value)
        elif self.gpu.processes:
            self.gpu.processes[-1].describe(self._path[-1].replace("_", " "), value)
