"""Run the reads that make up one Reading, so that a failing read only omits its own part."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from gpu_triage.driver.kernel.files import missing_file, parsing, read_text, refuse_unmounted
from gpu_triage.errors import HostReadFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

T = TypeVar("T")

_CUT_OFF = "the last line is cut off"


class HostInquiry:
    """Reads on behalf of one reader in one round, collecting failures.

    A read returns None both for missing files and for failures; `finish` reports the failures. A missing file means
    that this kernel lacks the feature, unless the file is `required`: every Linux host has it, so it is a failure.
    """

    def __init__(self, failures: list[str], root: Path | None = None, *, once: bool = False) -> None:
        """Start collecting the round's failures; if no read returns anything, `root` must at least be mounted.

        With `once`, a reason is reported once per round: files of hundreds of CPUs fail together.
        """
        self._failures = failures
        self._root = root
        self._once = once
        self._errors: list[HostReadFailed] = []
        self._answered = False

    def ask(self, read: Callable[[], T | None], *, aside: bool = False) -> T | None:
        """Call `read`; return None if it raises HostReadFailed, which is recorded.

        What is read `aside`, such as the names of devices, does not make up for failures of everything else.
        """
        try:
            answer = read()
        except HostReadFailed as error:
            self._errors.append(error)
            return None
        self._answered |= answer is not None and not aside
        return answer

    def parse(self, path: Path, parser: Callable[[str], T], *, required: bool = False, aside: bool = False) -> T | None:
        """Parse a whole file; a ValueError of the parser is recorded as ``malformed``. For `aside`, see `ask`."""

        def read() -> T | None:
            text = _text(path, required=required)
            if text is None:
                return None
            with parsing(path):
                if _is_cut_off(text):
                    raise ValueError(_CUT_OFF)
                return parser(text)

        return self.ask(read, aside=aside)

    def lines(self, path: Path, parse_line: Callable[[str], T | None], *, required: bool = False) -> list[T] | None:
        """Parse a file line by line; lines for which `parse_line` returns None are dropped.

        Lines that raise ValueError are skipped, and ``malformed`` is recorded once per file. Returns None if a line was
        malformed and no other could be parsed.
        """
        return self.ask(lambda: self._understood_lines(_text(path, required=required), path, parse_line))

    def need(self, path: Path, parser: Callable[[str], T]) -> T:
        """Like `parse`, for a required file without which the reading is useless."""
        answer = self.parse(path, parser, required=True)
        if answer is None:
            raise self._last_failure()
        return answer

    def finish(self) -> None:
        """Report the collected failures to the round; raises the last one if nothing was answered."""
        if self._errors and not self._answered:
            raise self._last_failure()
        self._report(self._errors)
        if self._root is not None and not (self._answered or self._errors):
            refuse_unmounted(self._root)

    def _last_failure(self) -> HostReadFailed:
        """The last failure, for the caller to raise; records the earlier ones in the round."""
        *earlier, last = self._errors
        self._report(earlier)
        return last

    def _report(self, errors: Iterable[HostReadFailed]) -> None:
        for error in errors:
            if not (self._once and error.reason in self._failures):
                self._failures.append(error.reason)

    def _understood_lines(self, text: str | None, path: Path, parse_line: Callable[[str], T | None]) -> list[T] | None:
        if text is None:
            return None
        understood: list[T] = []
        first_error = ValueError(_CUT_OFF) if _is_cut_off(text) else None
        for line in text.split("\n")[:-1]:
            try:
                fact = parse_line(line) if line.strip() else None
            except ValueError as error:
                first_error = first_error or error
                continue
            if fact is not None:
                understood.append(fact)
        if first_error is not None:
            malformed = HostReadFailed("malformed", path, str(first_error))
            if not understood:
                raise malformed from first_error
            self._errors.append(malformed)
        return understood


def _text(path: Path, *, required: bool) -> str | None:
    text = read_text(path)
    if text is None and required:
        raise missing_file(path)
    return text


def _is_cut_off(text: str) -> bool:
    """Whether the text ends mid-line. The kernel terminates every line, and a truncated number would look valid."""
    return bool(text) and not text.endswith("\n")
