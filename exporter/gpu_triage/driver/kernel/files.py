"""Read procfs and sysfs files, parse formats they share, and check that they are mounted.

Everything that this program reads there passes through `_ask`, so that a recording has all of it, and a replay needs no
files. In this package `read_*` raises HostReadFailed for what exists and cannot be read or parsed, and `parse_*`
ValueError for text of another format.
"""

import errno
import os
import re
import stat
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Final, Literal, ParamSpec, TypeVar, get_args

from gpu_triage.errors import HostReadFailed

T = TypeVar("T")
P = ParamSpec("P")

DEFAULT_LIMIT_BYTES = 1 << 20  # far above any file read here; /proc/stat of a 512-CPU host is about 60 KiB
_CHUNK_BYTES = 1 << 16
"""Buffer size per read; larger buffers make Python allocate and free memory through the kernel each time."""

MAX_CPUS = 8192  # the kernel's own limit (NR_CPUS of CONFIG_MAXSMP)

_ABSENT = frozenset(
    {
        errno.ENOENT,
        errno.ENOTDIR,
        errno.ESRCH,  # the process ended between open and read
        errno.ENODEV,  # the device left between open and read
        errno.ENXIO,
        errno.EOPNOTSUPP,  # PSI is built in but disabled
        errno.EINVAL,  # an attribute that does not apply now, such as the speed of a link that is down
    }
)
MISSING: Final = "missing"
REJECTED: Final = "rejected"
_NOT_A_FILE = "not_a_file"
_REASONS = {
    errno.ENOENT: MISSING,
    errno.ENXIO: MISSING,
    errno.ENODEV: MISSING,
    errno.EACCES: "no_permission",
    errno.EPERM: "no_permission",
    errno.EAGAIN: _NOT_A_FILE,  # a pipe or device without data; regular files never return this
    errno.EINVAL: REJECTED,
}

_INTEGER = re.compile(r"-?[0-9]{1,20}")
_COUNT_DIGITS = 20

Question = Literal["text", "names", "folders", "link", "place", "presence", "access"]
"""What can be queried about a path: the text of a file, the names or folders in a folder, the target of a link, the
path with all links resolved, whether it exists, and whether it can be opened."""

QUESTIONS: Final = get_args(Question)

Answer = Callable[[], "bytes | None"]
"""Returns an answer, None if it is absent; raises HostReadFailed. Names are separated by slashes."""

Hook = Callable[[Question, str, Answer], "bytes | None"]
"""Answers in place of the kernel. Called with the question, the path, and what the kernel would answer."""


class _Hooks:
    """The hooks of all roots, with their names, oldest first; replaced as a whole, as readers don't lock."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.all: tuple[tuple[str, str, Hook], ...] = ()


_HOOKS: Final = _Hooks()  # process-wide, as the file systems are: readers name a file by its path alone


@contextmanager
def hooked(roots: Mapping[str, Path], hook: Hook) -> Iterator[None]:
    """Call `hook` for all reads below these roots, with paths that start with a root's name (``sys``, ``proc``)."""
    added = tuple((os.fspath(root), name, hook) for name, root in roots.items())
    with _HOOKS.lock:
        _HOOKS.all += added
    try:
        yield
    finally:
        with _HOOKS.lock:
            _HOOKS.all = tuple(each for each in _HOOKS.all if each not in added)


def _ask(question: Question, path: Path | str, answer: Answer) -> bytes | None:
    if _HOOKS.all:
        full = os.fspath(path)
        for root, name, hook in _HOOKS.all:
            if full.startswith(root) and (len(full) == len(root) or full[len(root)] == "/"):
                answer = partial(hook, question, name + full[len(root) :], answer)
    return answer()


def _answered(path: Path | str, call: Callable[[Path | str], object], absent: frozenset[int] = _ABSENT) -> bytes | None:
    try:
        answer = call(path)
    except OSError as error:
        if error.errno in absent:
            return None
        raise failure(path, error) from error
    return os.fsencode(answer) if isinstance(answer, str | bytes) else b""


def failure(path: Path | str, error: OSError) -> HostReadFailed:
    """What an error of the system means for a reader: ``missing``, ``no_permission``, … or ``io_error``."""
    return HostReadFailed(_REASONS.get(error.errno or 0, "io_error"), path, error.strerror or str(error))


def read_text(path: Path | str, limit: int = DEFAULT_LIMIT_BYTES, *, may_reject: bool = False) -> str | None:
    """Read a kernel file, U+FFFD for what is not UTF-8; None if it is missing, or "not applicable" by its error.

    A device that `may_reject` the read fails by the same error (EINVAL): then this is a failure, `REJECTED`.
    """
    absent = _ABSENT - {errno.EINVAL} if may_reject else _ABSENT
    content = _ask("text", path, partial(_answered, path, partial(_content, limit=limit), absent))
    return None if content is None else content.decode("utf-8", errors="replace")


def _content(path: Path | str, limit: int) -> bytes:
    # Path.open and file objects take longer than the kernel itself. O_NONBLOCK: if the path is a pipe, open would
    # otherwise block until there is a writer, and stall all further reads.
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        content = os.read(descriptor, min(limit + 1, _CHUNK_BYTES))
        # procfs returns about a page per call, so one read may not be the whole file.
        more = content
        while more and len(content) <= limit:
            more = os.read(descriptor, min(limit + 1 - len(content), _CHUNK_BYTES))
            content += more
        # Checked last: anything with content is a file, so most reads skip the fstat.
        if not content and not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise HostReadFailed(_NOT_A_FILE, path, "is a pipe or a device, not a file")
    finally:
        os.close(descriptor)
    if len(content) > limit:
        raise HostReadFailed("too_large", path, f"more than {limit} bytes")
    return content


def if_readable(read: Callable[P, T | None], *args: P.args, **kwargs: P.kwargs) -> T | None:
    """What `read` returns for these arguments; None if it raises HostReadFailed."""
    try:
        return read(*args, **kwargs)
    except HostReadFailed:
        return None


def text_of(path: Path | str) -> str:
    return if_readable(read_text, path) or ""


def required_text(path: Path | str, limit: int = DEFAULT_LIMIT_BYTES) -> str:
    """Read a file that every Linux host has, as `read_text`; raises if it is missing."""
    text = read_text(path, limit)
    if text is None:
        raise HostReadFailed(MISSING, path, "every Linux host has this file: is the host's procfs mounted there?")
    return text


def parse_file(
    path: Path | str, parser: Callable[[str], T], limit: int = DEFAULT_LIMIT_BYTES, *, required: bool = False
) -> T | None:
    """Parse a kernel file; None if there is no such file, unless it is required."""
    text = required_text(path, limit) if required else read_text(path, limit)
    with parsing(path):
        return None if text is None else parser(text)


def read_int(path: Path) -> int | None:
    """Read a kernel file that contains one integer; as `parse_file`."""
    return parse_file(path, _integer, limit=4096)


def _integer(text: str) -> int:
    if not _INTEGER.fullmatch(text.strip(" \n")):
        raise ValueError(f"{text[:40]!r} is no integer")
    return int(text)


def read_names(directory: Path | str, *, folders: bool = False) -> list[str] | None:
    """Sorted names in a directory, or only those of `folders`; None if it does not exist."""
    listed = partial(_answered, directory, _folders if folders else _names)
    answer = _ask("folders" if folders else "names", directory, listed)
    return None if answer is None else sorted(os.fsdecode(answer).split("/")) if answer else []


def _names(directory: Path | str) -> str:
    return "/".join(os.listdir(directory))  # noqa: PTH208 - only names are needed, not Path objects


def _folders(directory: Path | str) -> str:
    with os.scandir(directory) as entries:
        return "/".join(entry.name for entry in entries if entry.is_dir(follow_symlinks=False))


def names_in(directory: Path | str, *, folders: bool = False) -> list[str]:
    """Sorted names in a kernel directory, as by `read_names`; empty if it cannot be read."""
    return if_readable(read_names, directory, folders=folders) or []


def read_link(path: Path | str) -> str | None:
    """Target of a symbolic link, unresolved; None if there is no such link."""
    target = _ask("link", path, partial(_answered, path, os.readlink))  # text is needed, not a Path
    return None if target is None else os.fsdecode(target)


def target_of(path: Path | str) -> str:
    """Target of a symbolic link, unresolved, or "" if it cannot be read."""
    return if_readable(read_link, path) or ""


def real_path(path: Path | str) -> str | None:
    """A path with all links resolved; None if it does not exist, or cannot be resolved."""
    found = if_readable(_ask, "place", path, partial(_answered, path, partial(os.path.realpath, strict=True)))
    return None if found is None else os.fsdecode(found)


def is_present(path: Path | str) -> bool:
    """Whether the path exists; a symlink counts even if its target is missing or inaccessible."""
    return if_readable(_ask, "presence", path, partial(_answered, path, os.lstat)) is not None


def refusal(path: Path | str) -> str | None:
    """Why a file cannot be opened for reading (``missing``, ``no_permission``, …); None if it can."""
    try:
        return MISSING if _ask("access", path, partial(_answered, path, _opened)) is None else None
    except HostReadFailed as failed:
        return failed.reason


def _opened(path: Path | str) -> None:
    os.close(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC))


@contextmanager
def parsing(path: object) -> Iterator[None]:
    """Parse this file's content in the block: a ValueError becomes HostReadFailed, ``malformed``."""
    try:
        yield
    except ValueError as error:
        raise HostReadFailed("malformed", path, str(error)) from error


def parse_count(text: str) -> int:
    """Parse a counter as printed by the kernel: decimal digits only."""
    if not (text.isascii() and text.isdigit() and len(text) <= _COUNT_DIGITS):
        raise ValueError(f"{text[:40]!r} is no count")
    return int(text)


def parse_cpu_list(text: str) -> frozenset[int]:
    """Parse the kernel's CPU list format: ``0-31,64`` is CPUs 0 to 31 and 64; empty text is an empty set."""
    cpus: set[int] = set()
    stripped = text.strip()
    for part in stripped.split(",") if stripped else ():
        first_text, dash, last_text = part.partition("-")
        first = parse_count(first_text)
        last = parse_count(last_text) if dash else first
        if not first <= last < MAX_CPUS:
            raise ValueError(f"{part[:40]!r} is not a CPU range")
        cpus.update(range(first, last + 1))
    return frozenset(cpus)


PROCFS, SYSFS = "procfs", "sysfs"
SHOWS: Final = {
    PROCFS: "CPUs, memory, disks, network and processes of the host",
    SYSFS: "the PCI bus, links, NUMA nodes and network adapters",
}
"""What each file system provides, by the name in its option (``--path.procfs``)."""

_LANDMARKS: Final = ("stat", "devices", "self", "class", "bus")
"""Every procfs or sysfs has some of these, whatever the kernel config; a recorded one has at least one."""


def is_mounted(root: Path) -> bool:
    """Whether the path looks like a procfs or sysfs."""
    return any(is_present(root / name) for name in _LANDMARKS)


def refuse_unmounted(root: Path) -> None:
    """Raise if no file system is mounted there."""
    if not is_mounted(root):
        detail = "nothing is mounted there: mount the host's, or correct --path.procfs or --path.sysfs"
        raise HostReadFailed(MISSING, root, detail)


_CUT_OFF = "the last line is cut off"
"""The kernel terminates every line, and a truncated number would look valid."""


class HostInquiry:
    """Reads on behalf of one reader in one round, collecting failures.

    A read returns None both for missing files and for failures; `finish` reports the failures. A missing file means
    that this kernel lacks the feature, unless the file is `required`: every Linux host has it, so it is a failure.
    """

    def __init__(self, failures: list[str], root: Path | None = None) -> None:
        """Start collecting the round's failures; if no read returns anything, `root` must at least be mounted."""
        self._failures = failures
        self._root = root
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

        def parse(text: str) -> T:
            if text and not text.endswith("\n"):
                raise ValueError(_CUT_OFF)
            return parser(text)

        return self.ask(lambda: parse_file(path, parse, required=required), aside=aside)

    def lines(self, path: Path, parse_line: Callable[[str], T | None], *, required: bool = False) -> list[T] | None:
        """Parse a file line by line; lines for which `parse_line` returns None are dropped.

        Lines that raise ValueError are skipped, and ``malformed`` is recorded once per file. Returns None if a line was
        malformed and no other could be parsed.
        """

        def parse(text: str) -> list[T]:
            *lines, rest = text.split("\n")
            errors = [_CUT_OFF] if rest else []
            facts: list[T | None] = []
            for line in filter(str.strip, lines):
                try:
                    facts.append(parse_line(line))
                except ValueError as error:
                    errors.append(str(error))
            understood = [fact for fact in facts if fact is not None]
            if errors and not understood:
                raise ValueError(errors[0])
            if errors:
                self._errors.append(HostReadFailed("malformed", path, errors[0]))
            return understood

        return self.ask(lambda: parse_file(path, parse, required=required))

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
        self._failures.extend(error.reason for error in self._errors)
        if self._root is not None and not (self._answered or self._errors):
            refuse_unmounted(self._root)

    def _last_failure(self) -> HostReadFailed:
        """The last failure, for the caller to raise; records the earlier ones in the round."""
        *earlier, last = self._errors
        self._failures.extend(error.reason for error in earlier)
        return last
