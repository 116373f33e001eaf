"""Asks the kernel for the parts of one Reading, so that a part that fails costs only itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from gpu_triage.errors import HostReadFailed
from gpu_triage.kernel.files import read_text
from gpu_triage.kernel.mounts import missing_file, refuse_unmounted

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

T = TypeVar("T")

_CUT_OFF = "the last line is cut off"


class HostInquiry:
    """The questions of one reader in one round.

    A question answers None for what is absent and for what failed; `finish` hands over the failures. What is absent is
    a feature that this kernel lacks, unless the file is `required`: every Linux host has it, and its absence fails.
    """

    def __init__(self, failures: list[str], root: Path | None = None) -> None:
        """Ask on behalf of a round.

        Args:
            failures: the round's list of failures.
            root: of the file system that is asked. Where nothing answers, it must at least be mounted.
        """
        self._failures = failures
        self._root = root
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

    def parse(self, path: Path, parser: Callable[[str], T], *, required: bool = False) -> T | None:
        """What `parser` makes of a whole file; a ValueError of its is noted as ``malformed``."""

        def read() -> T | None:
            text = _text(path, required=required)
            if text is None:
                return None
            if _is_cut_off(text):
                raise HostReadFailed("malformed", path, _CUT_OFF)
            try:
                return parser(text)
            except ValueError as error:
                raise HostReadFailed("malformed", path, str(error)) from error

        return self.ask(read)

    def lines(self, path: Path, parse_line: Callable[[str], T | None], *, required: bool = False) -> list[T] | None:
        """What `parse_line` makes of each line of a file, less the lines it answers None to.

        A line it raises ValueError for costs only itself; ``malformed`` is noted once a file. When no line
        was understood and one was malformed, the answer is None.
        """
        return self.ask(lambda: self._understood_lines(_text(path, required=required), path, parse_line))

    def need(self, path: Path, parser: Callable[[str], T]) -> T:
        """As `parse`, of a required file without which the reading is worth nothing.

        Raises:
            HostReadFailed: it cannot be read or understood, whatever else answered; earlier failures are noted.
        """
        answer = self.parse(path, parser, required=True)
        if answer is None:
            raise self._last_failure()
        return answer

    def finish(self) -> None:
        """Hand over the failures, each once.

        Raises:
            HostReadFailed: there were failures and no answer at all; the earlier ones are noted in the round. Or
                nothing answered, and the file system is not mounted: ``missing``.
        """
        if self._errors and not self._answered:
            raise self._last_failure()
        self._failures.extend(error.reason for error in self._errors)
        if self._root is not None and not (self._answered or self._errors):
            refuse_unmounted(self._root)

    def _last_failure(self) -> HostReadFailed:
        """The last failure, for the caller to raise; the earlier ones are noted in the round."""
        *earlier, last = self._errors
        self._failures.extend(error.reason for error in earlier)
        return last

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
    """Whether a text ends within a line: the kernel ends every one, and half a number would pass for a whole one."""
    return bool(text) and not text.endswith("\n")
