"""Reads and writes recordings on disk: a folder, or the same files in one ``.tar.gz``.

``recording.json``: format, start time and duration. ``nvml.jsonl``: one NVML response per line. ``files.jsonl``: one
answer about a path of sysfs or procfs per line, repeated whenever it changes. ``kmsg``, if it could be read: the
driver's kernel messages. ``verdict.json``, only in flight recordings: the judgment that triggered the recording.

Everything is validated and kept in memory: no name in a recording is ever used as a path. What is read is limited in
bytes and time, whatever a recording claims.
"""

import errno
import io
import json
import re
import stat
import string
import tarfile
import tempfile
import time
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

from gpu_triage.documents import Place, parse_json, read_value
from gpu_triage.documents.files import replace_file, sync_directory, write_file
from gpu_triage.documents.stream import Budget, Member, Stream, TimeLimit, members, opened, unpacked
from gpu_triage.driver.kernel.files import QUESTIONS
from gpu_triage.errors import DocumentError, RecordingError
from gpu_triage.record.recording import ABSENT, FAILED, FOUND, MOST_MOMENT, About, Recording, TimedAnswer

MOST_BYTES: Final = 128 << 20
"""Limit for a recording, uncompressed, and for the outputs in each of its parts."""
MOST_READING_SECONDS: Final = 120.0

_FORMAT: Final = "gpu-triage-recording"
_VERSION: Final = 1
_MOST_ABOUT_BYTES: Final = 1 << 20
_MOST_TEXT_BYTES: Final = 32 << 20  # more than the kernel's log and a judgment
_MOST_LINES: Final = 500_000
_MOST_LINE_BYTES: Final = 8 << 20
_MOST_BLOB_BYTES: Final = 4 << 20  # of one output; the largest real ones list the processes in /proc
_MOST_BLOBS: Final = 16  # of one answer
_LEAST_TEXT: Final = 4
_PRINTABLE: Final = string.printable.encode()
_MOST_CODE: Final = 1 << 31
_ARCHIVE: Final = ".tar.gz"
_ABOUT, _NVML, _FILES = _PARTS = ("recording.json", "nvml.jsonl", "files.jsonl")
_KMSG, _VERDICT = _OPTIONAL = ("kmsg", "verdict.json")
_NOT_OURS: Final = "name what gpu-triage record wrote"
_INVALID: Final = "record it again"
_REASON: Final = re.compile(b"[a-z_]{1,40}")

_Outs = tuple[bytes | None, ...]
T = TypeVar("T")


def prepare_target(path: Path, *, replace: bool = False) -> None:
    """Check, before recording, that this path can be written to; creates the folder, or raises RecordingError.

    `replace` replaces a recording or file; a folder with other content is never overwritten.
    """
    try:
        if path.name.endswith(_ARCHIVE):
            if path.is_dir():
                raise IsADirectoryError(errno.EISDIR, "is a directory")
            if (path.exists() or path.is_symlink()) and not replace:
                raise RecordingError(f"{path}: exists; name another file, or replace it with --force")
            tempfile.TemporaryFile(dir=path.parent).close()  # fails where no file can be created
            return
        path.mkdir(parents=True, exist_ok=True)
        names = {each.name for each in path.iterdir()}
        if names and not {*_PARTS} <= names <= {*_PARTS, *_OPTIONAL}:
            raise RecordingError(f"{path}: is not empty; name a new folder, or a file ending in {_ARCHIVE}")
        if names and not replace:
            raise RecordingError(f"{path}: holds a recording; name another folder, or replace it with --force")
    except OSError as error:
        raise _unwritable(path, error) from error


def write_recording(recording: Recording, path: Path) -> None:
    """Write a recording, a file if the path ends in ``.tar.gz``, else a folder; replaces one. Raises RecordingError."""
    prepare_target(path, replace=True)
    try:
        if path.name.endswith(_ARCHIVE):
            write_file(path, archived(recording))
            return
        for name in _OPTIONAL:
            (path / name).unlink(missing_ok=True)
        for name, raw in _contents(recording):
            # In another user's folder, what has the name of a part may be a link.
            replace_file(path / name, raw)
        sync_directory(path)
    except OSError as error:
        raise _unwritable(path, error) from error


def archived(recording: Recording) -> bytes:
    """A recording as a ``.tar.gz``."""
    archive = io.BytesIO()
    with tarfile.open(fileobj=archive, mode="w:gz") as tar:
        for name, raw in _contents(recording):
            member = tarfile.TarInfo(f"recording/{name}")
            member.size, member.mtime = len(raw), int(recording.wall)
            tar.addfile(member, io.BytesIO(raw))
    return archive.getvalue()


def _unwritable(path: Path, error: OSError) -> RecordingError:
    return RecordingError(f"{path}: cannot be written: {error.strerror or error}; name another place")


def _contents(recording: Recording) -> Iterator[tuple[str, bytes]]:
    for name, text in _texts(recording):
        # Names that aren't valid UTF-8 are escaped.
        yield name, text.encode("utf-8", "backslashreplace")


def _texts(recording: Recording) -> Iterator[tuple[str, str]]:
    about = {"format": _FORMAT, "version": _VERSION, **_facts(recording)}
    yield _ABOUT, json.dumps(about, indent=2) + "\n"
    yield _NVML, "".join(_line(json.loads(each.key), each) for each in recording.answers)
    yield _FILES, "".join(_line(each.key, each) for each in recording.files)
    for name, text in ((_KMSG, recording.kmsg), (_VERDICT, recording.verdict)):
        if text is not None:
            yield name, text


def _facts(about: About) -> dict[str, Any]:
    return {each.name: getattr(about, each.name) for each in fields(About)}


def _line(key: object, answer: TimedAnswer) -> str:
    return json.dumps((round(answer.seconds, 3), key, answer.code, *map(_packed, answer.outs))) + "\n"


def _packed(raw: bytes | None) -> str | list[object] | None:
    """A buffer as JSON; text is stored as text, so that recordings can be inspected."""
    if raw is None:
        return None
    text = raw.rstrip(b"\0")
    if len(text) >= _LEAST_TEXT and not text.strip(_PRINTABLE):
        return [text.decode("ascii"), len(raw)]
    return b64encode(zlib.compress(raw)).decode()


def _unpacked(packed: object) -> bytes | None:
    if packed is None:
        return None
    if isinstance(packed, list):
        text, size = packed
        if not 0 <= size <= _MOST_BLOB_BYTES:
            raise ValueError(f"an answer of {size} bytes")
        return str(text).encode().ljust(size, b"\0")
    unpack = zlib.decompressobj()
    raw = unpack.decompress(b64decode(str(packed), validate=True), _MOST_BLOB_BYTES)
    if unpack.unconsumed_tail:
        raise ValueError(f"an answer of more than {_MOST_BLOB_BYTES} bytes")
    return raw


def read_recording(path: Path, now: Callable[[], float] = time.monotonic) -> Recording:
    """Read the recording in a folder or ``.tar.gz``; `now` limits the time that it takes.

    Raises RecordingError if it is unreadable, too large or invalid; the message has the part and line.
    """
    found: dict[str, Any] = {}
    try:
        with ExitStack() as stack:
            budget = Budget(MOST_BYTES, TimeLimit(MOST_READING_SECONDS, now))
            for name, stream in _parts(path, budget, stack):
                if name not in _READERS or name in found:
                    raise RecordingError(f"holds {name[:80]!r}; {_NOT_OURS}")
                found[name] = _READERS[name](name, stream)
        lacking = [name for name in _PARTS if name not in found]
        if lacking:
            raise RecordingError(f"has no {lacking[0]}; {_NOT_OURS}")
    except DocumentError as error:
        raise RecordingError(f"{path}: {error}") from error
    except (OSError, EOFError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise RecordingError(f"{path}: cannot be read: {why}; {_NOT_OURS}") from error
    facts = _facts(found[_ABOUT])
    return Recording(
        **facts, answers=found[_NVML], files=found[_FILES], kmsg=found.get(_KMSG), verdict=found.get(_VERDICT)
    )


def _parts(path: Path, budget: Budget, stack: ExitStack) -> Iterator[Member]:
    if path.is_dir():
        for name in (*_PARTS, *_OPTIONAL):
            part = path / name
            if name in _OPTIONAL and not part.exists():
                continue
            if not stat.S_ISREG(part.lstat().st_mode):
                raise RecordingError(f"{name}: is no file; {_NOT_OURS}")
            yield Member(name, Stream(budget.spend(iter(opened(stack.enter_context(part.open("rb")).read)))))
        return
    if not stat.S_ISREG(path.stat().st_mode):
        # Opening a pipe would block until a writer opens it.
        raise OSError(errno.EINVAL, "is no file")
    archive = unpacked(opened(stack.enter_context(path.open("rb")).read), budget)
    for member in members(archive):
        yield member._replace(name=member.name.removeprefix("recording/"))


def _content(stream: Stream, most_bytes: int) -> bytes:
    bounded = Stream(Budget(most_bytes).spend(iter(stream)))
    content = b"".join(bounded)
    if damage := bounded.damage or stream.damage:
        raise EOFError(damage)
    return content


def _text(name: str, stream: Stream) -> str:
    try:
        return _content(stream, _MOST_TEXT_BYTES).decode()
    except UnicodeDecodeError as error:
        raise RecordingError(f"{name}: is not UTF-8; {_INVALID}") from error


def _about(name: str, stream: Stream) -> About:
    document = parse_json(_content(stream, _MOST_ABOUT_BYTES), name)
    about = dict(document) if isinstance(document, dict) else {}
    for key, right in (("format", _FORMAT), ("version", _VERSION)):
        if (found := about.pop(key, None)) != right:
            raise RecordingError(f"{name}: {key}: is {found!r:.80}, and this program reads {right!r}")
    return read_value(About, about, Place(name))


def _lines(name: str, stream: Stream) -> Iterator[bytes]:
    """The lines without their ends; never holds more than one of them and a chunk of the stream."""
    rest = b""
    for chunk in stream:
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
        if len(rest) > _MOST_LINE_BYTES:
            raise RecordingError(f"{name}: has more than {_MOST_LINE_BYTES >> 20} MiB in a line; {_NOT_OURS}")
    if stream.damage:
        raise EOFError(stream.damage)
    yield rest


def _rows(what: str, read: Callable[..., T], name: str, stream: Stream) -> tuple[T, ...]:
    """Parse each line; `what` describes a valid one for error messages."""
    rows = []
    for number, line in enumerate(_lines(name, stream), start=1):
        if number > _MOST_LINES:
            raise RecordingError(f"{name}: has more than {_MOST_LINES} lines; {_NOT_OURS}")
        if line:
            try:
                rows.append(read(*json.loads(line)))
            except (ValueError, TypeError, AttributeError, ArithmeticError, RecursionError, zlib.error) as error:
                raise RecordingError(f"{name}: line {number}: is no {what}; {_INVALID}") from error
    return tuple(rows)


def _answers(
    what: str, key_of: Callable[[object, int, _Outs], str], name: str, stream: Stream
) -> tuple[TimedAnswer, ...]:
    left = MOST_BYTES

    def unpacked_out(packed: object) -> bytes | None:
        nonlocal left
        out = _unpacked(packed)
        left -= len(out or b"")
        if left < 0:
            raise RecordingError(f"{name}: is larger than {MOST_BYTES >> 20} MiB when unpacked; {_NOT_OURS}")
        return out

    def answer(seconds: float, key: object, code: object, *packed: object) -> TimedAnswer:
        if not isinstance(code, int) or not -_MOST_CODE <= code < _MOST_CODE or len(packed) > _MOST_BLOBS:
            raise ValueError("no code of NVML, or too many buffers")
        outs = tuple(map(unpacked_out, packed))
        return TimedAnswer(_time(seconds), key_of(key, code, outs), code, outs)

    return _rows(what, answer, name, stream)


def _call_key(parts: object, _code: int, _outs: _Outs) -> str:
    """The key of a call: a function's name, and numbers, text, or lists of these."""
    if not isinstance(parts, list) or not parts or not isinstance(parts[0], str):
        raise TypeError("a key does not start with a function's name")
    flat = [each for part in parts for each in (part if isinstance(part, list) else [part])]
    if any(isinstance(each, (dict, list)) for each in flat):
        raise TypeError("a key is nested")
    return json.dumps(parts)


def _file_key(key: object, code: int, outs: _Outs) -> str:
    """The key of a question about a file of sysfs or procfs; raises ValueError if that cannot be its answer."""
    question, _, path = str(key).partition(" ")
    one = len(outs) == 1
    right = {FOUND: one, ABSENT: not outs, FAILED: one and _REASON.fullmatch(outs[0] or b"") is not None}
    is_file = question in QUESTIONS and path.split("/", maxsplit=1)[0] in ("sys", "proc")
    if not is_file or None in outs or not right.get(code):
        raise ValueError("no answer about a path of sysfs or procfs")
    return str(key)


def _time(value: float) -> float:
    seconds = float(value)
    if not 0 <= seconds <= MOST_MOMENT:  # also true for NaN
        raise ValueError("is no time")
    return seconds


_READERS: Final[Mapping[str, Callable[[str, Stream], Any]]] = {
    _ABOUT: _about,
    _NVML: partial(_answers, "answer of NVML", _call_key),
    _FILES: partial(_answers, "answer about a file of sysfs or procfs", _file_key),
    _KMSG: _text,
    _VERDICT: _text,
}
