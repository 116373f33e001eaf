"""Asks the kernel for the parts of one Reading, so that a part that fails costs only itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from gpu_triage.errors import HostReadFailed
from gpu_triage.kernel.files import read_text

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

T = TypeVar("T")

_CUT_OFF = "the last line is cut off"


class HostInquiry:
    """The questions of one reader in one round.

    A question answers None for what is absent and for what failed; `finish` hands over the failures.
    """

    def __init__(self, failures: list[str]) -> None:
        """Ask on behalf of a round whose list of failures this is."""
        self._failures = failures
        self._errors: list[HostReadFailed] = []
        self._answered = False

    def ask(self, read: Callable[[], T | None]) -> T | None:
        """What `read` returns; None when it raises HostReadFailed, which is noted."""
        try:
            answer = read()
        except HostReadFailed as error:
            self._errors.append(error)
            return None
        self._answered |= answer is not None
        return answer

    def parse(self, path: Path, parser: Callable[[str], T]) -> T | None:
        """What `parser` makes of a whole file; a ValueError of its is noted as ``malformed``."""

        def read() -> T | None:
            text = read_text(path)
            if text is None:
                return None
            if _is_cut_off(text):
                raise HostReadFailed("malformed", path, _CUT_OFF)
            try:
                return parser(text)
            except ValueError as error:
                raise HostReadFailed("malformed", path, str(error)) from error

        return self.ask(read)

    def lines(self, path: Path, parse_line: Callable[[str], T | None]) -> list[T] | None:
        """What `parse_line` makes of each line of a file, less the lines it answers None to.

        A line it raises ValueError for costs only itself; ``malformed`` is noted once a file. When no line
        was understood and one was malformed, the answer is None.
        """
        return self.ask(lambda: self._understood_lines(path, parse_line))

    def finish(self) -> None:
        """Hand over the failures, each once.

        Raises:
            HostReadFailed: there were failures and no answer at all; the earlier ones are noted in the round.
        """
        raised = self._errors.pop() if self._errors and not self._answered else None
        self._failures.extend(error.reason for error in self._errors)
        if raised is not None:
            raise raised

    def _understood_lines(self, path: Path, parse_line: Callable[[str], T | None]) -> list[T] | None:
        text = read_text(path)
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


def _is_cut_off(text: str) -> bool:
    """Whether a text ends within a line: the kernel ends every one, and half a number would pass for a whole one."""
    return bool(text) and not text.endswith("\n")
