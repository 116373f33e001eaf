"""Reads and writes recordings on disk: a folder, or the same files in one ``.tar.gz``.

``recording.json``: format, start time and duration. ``nvml.jsonl``: one NVML response per line. ``files.jsonl``: one
file, link or folder of sysfs or procfs per line, repeated whenever it changes. ``kmsg``: the driver's kernel log
records. ``verdict.json``, only in flight recordings: the judgment that triggered the recording.
Everything is read into memory and validated: nothing is ever extracted to paths named in the recording.
"""

from __future__ import annotations

import errno
import io
import json
import stat
import tarfile
import zlib
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Annotated, Any, Final, TypeVar, get_args

from gpu_triage.documents import Place, Range, parse_json, read_value
from gpu_triage.errors import DocumentError, RecordingError
from gpu_triage.record.recording import MOST_BYTES, FileState, Kind, NvmlAnswer, Recording

_FORMAT: Final = "gpu-triage-recording"
_VERSION: Final = 1
_MOST_LINES: Final = 1_000_000
_MOST_BLOB_BYTES: Final = 1 << 20  # of one output buffer; the largest real ones are process lists
_LEAST_TEXT: Final = 4
_MOST_SECONDS: Final = 1e11  # beyond any real clock
_ARCHIVE: Final = ".tar.gz"
_ABOUT, _NVML, _FILES, _KMSG = _PARTS = ("recording.json", "nvml.jsonl", "files.jsonl", "kmsg")
_VERDICT: Final = "verdict.json"
_NOT_OURS: Final = "name what gpu-triage record wrote"

T = TypeVar("T")
_Seconds = Annotated[float, Range(0, _MOST_SECONDS)]


@dataclass(frozen=True, slots=True)
class _About:
    """Content of ``recording.json``."""

    format: str
    version: int
    versions: dict[str, str]
    monotonic: _Seconds
    wall: _Seconds
    seconds: _Seconds
    missing_functions: tuple[str, ...]
    kmsg_readable: bool


def prepare_target(path: Path, *, replace: bool = False) -> None:
    """Check, before recording, that this path can be written to; creates the folder, or raises RecordingError.

    `replace` replaces a recording or file; a folder with other content is never overwritten.
    """
    try:
        if path.name.endswith(_ARCHIVE):
            known = path.exists()
            if known and not replace:
                raise RecordingError(f"{path}: exists; name another file, or replace it with --force")
            path.open("ab").close()
            if not known:
                path.unlink()
            return
        path.mkdir(parents=True, exist_ok=True)
        names = {each.name for each in path.iterdir()}
        if names and not {*_PARTS} <= names <= {*_PARTS, _VERDICT}:
            raise RecordingError(f"{path}: is not empty; name a new folder, or a file ending in {_ARCHIVE}")
        if names and not replace:
            raise RecordingError(f"{path}: holds a recording; name another folder, or replace it with --force")
    except OSError as error:
        raise _unwritable(path, error) from error


def write_recording(recording: Recording, path: Path) -> None:
    """Write a recording, a file if the path ends in ``.tar.gz``, else a folder; replaces one. Raises RecordingError."""
    prepare_target(path, replace=True)
    # Names that aren't valid UTF-8 are escaped.
    parts = {name: text.encode("utf-8", "backslashreplace") for name, text in _texts(recording)}
    try:
        if path.name.endswith(_ARCHIVE):
            with tarfile.open(path, "w:gz") as archive:
                for name, raw in parts.items():
                    member = tarfile.TarInfo(f"recording/{name}")
                    member.size, member.mtime = len(raw), int(recording.wall)
                    archive.addfile(member, io.BytesIO(raw))
            return
        (path / _VERDICT).unlink(missing_ok=True)
        for name, raw in parts.items():
            (path / name).write_bytes(raw)
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> RecordingError:
    return RecordingError(f"{path}: cannot be written: {error.strerror or error}; name another place")


def _texts(recording: Recording) -> Iterator[tuple[str, str]]:
    about = {
        "format": _FORMAT,
        "version": _VERSION,
        "versions": dict(recording.versions),
        "monotonic": recording.monotonic,
        "wall": recording.wall,
        "seconds": recording.seconds,
        "missing_functions": list(recording.missing),
        "kmsg_readable": recording.kmsg is not None,
    }
    yield _ABOUT, json.dumps(about, indent=2) + "\n"
    answers = ((round(s, 3), json.loads(key), code, *map(_packed, outs)) for s, key, code, outs in recording.answers)
    yield _NVML, "".join(json.dumps(each) + "\n" for each in answers)
    states = ((round(each.seconds, 3), *each[1:]) for each in recording.files)
    yield _FILES, "".join(json.dumps(each, ensure_ascii=False) + "\n" for each in states)
    yield _KMSG, recording.kmsg or ""
    if recording.verdict is not None:
        yield _VERDICT, recording.verdict


def _packed(raw: bytes | None) -> str | list[object] | None:
    """A buffer as JSON; text is stored as text, so that recordings can be inspected."""
    if raw is None:
        return None
    text = raw.rstrip(b"\0")
    if len(text) >= _LEAST_TEXT and all(32 <= byte < 127 for byte in text):  # noqa: PLR2004 - printable ASCII
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


def read_recording(path: Path) -> Recording:
    """Read the recording in a folder or ``.tar.gz``.

    Raises:
        RecordingError: it is unreadable, too large or invalid; the message has the part and line.
    """
    parts: dict[str, str] = {}
    left = MOST_BYTES
    try:
        for name, file in _folder_parts(path) if path.is_dir() else _archive_parts(path):
            raw = file.read(left + 1)
            if len(raw) > left:
                raise RecordingError(f"{path}: is larger than {MOST_BYTES >> 20} MiB; record a shorter watch")
            left -= len(raw)
            parts[name] = raw.decode("utf-8")
        lacking = [name for name in _PARTS if name not in parts]
        if lacking:
            raise RecordingError(f"{path}: has no {lacking[0]}; {_NOT_OURS}")
    except (OSError, tarfile.TarError, EOFError, zlib.error) as error:
        why = getattr(error, "strerror", None) or error
        raise RecordingError(f"{path}: cannot be read: {why}; {_NOT_OURS}") from error
    except UnicodeDecodeError as error:
        raise RecordingError(f"{path}: is not UTF-8; record it again") from error
    try:
        return _recording(parts)
    except DocumentError as error:
        raise RecordingError(f"{path}: {error}; record it again") from error


def _folder_parts(path: Path) -> Iterator[tuple[str, IO[bytes]]]:
    for name in (*_PARTS, _VERDICT):
        part = path / name
        if name == _VERDICT and not part.exists():
            continue
        if not stat.S_ISREG(part.lstat().st_mode):
            raise RecordingError(f"{part}: is no file; {_NOT_OURS}")
        with part.open("rb") as file:
            yield name, file


def _archive_parts(path: Path) -> Iterator[tuple[str, IO[bytes]]]:
    if not stat.S_ISREG(path.stat().st_mode):
        # Opening a pipe would block until a writer opens it.
        raise OSError(errno.EINVAL, "is no file")
    unseen = {*_PARTS, _VERDICT}
    with tarfile.open(path, "r|gz") as archive:
        for member in archive:
            name = member.name.removeprefix("recording/")
            file = archive.extractfile(member) if name in unseen and member.isreg() else None
            if file is None:
                raise RecordingError(f"{path}: holds {member.name[:80]!r}; {_NOT_OURS}")
            unseen.remove(name)
            yield name, file


def _recording(parts: Mapping[str, str]) -> Recording:
    document = parse_json(parts[_ABOUT].encode(), _ABOUT)
    about = document if isinstance(document, dict) else {}
    for key, right in (("format", _FORMAT), ("version", _VERSION)):
        if about.get(key) != right:
            raise RecordingError(f"{_ABOUT}: {key}: is {about.get(key)!r:.80}, and this program reads {right!r}")
    found = read_value(_About, document, Place(_ABOUT))
    kmsg = parts[_KMSG] if found.kmsg_readable else None
    began = found.monotonic, found.wall
    answers, files = tuple(_answers(parts)), tuple(_files(parts))
    missing, verdict = found.missing_functions, parts.get(_VERDICT)
    return Recording(found.versions, *began, found.seconds, missing, answers, files, kmsg, verdict)


def _rows(parts: Mapping[str, str], name: str, what: str, read: Callable[..., T]) -> Iterator[tuple[str, T]]:
    """Parse each line; yields its position and value. `what` describes a valid line for error messages."""
    lines = parts[name].split("\n")
    if len(lines) > _MOST_LINES:
        raise RecordingError(f"{name}: has more than {_MOST_LINES} lines")
    for number, line in enumerate(lines, start=1):
        if line:
            where = f"{name}: line {number}"
            try:
                row = read(*json.loads(line))
            except (ValueError, TypeError, AttributeError, LookupError, RecursionError, zlib.error) as error:
                raise RecordingError(f"{where}: is no {what}") from error
            yield where, row


def _answers(parts: Mapping[str, str]) -> Iterator[NvmlAnswer]:
    size = 0
    for where, answer in _rows(parts, _NVML, "answer of NVML", _answer):
        size += sum(len(out) for out in answer.outs if out is not None)
        if size > MOST_BYTES:
            raise RecordingError(f"{where}: the answers are larger than {MOST_BYTES >> 20} MiB when unpacked")
        yield answer


def _answer(seconds: Any, key: Any, code: Any, *outs: object) -> NvmlAnswer:
    if not isinstance(key, list) or not key or not isinstance(key[0], str):
        raise TypeError(f"{key!r:.40} does not start with a function's name")
    return NvmlAnswer(_time(seconds), json.dumps(key), int(code), tuple(map(_unpacked, outs)))


def _files(parts: Mapping[str, str]) -> Iterator[FileState]:
    for where, state in _rows(parts, _FILES, "file of sysfs or procfs", _file):
        root, *below = state.path.split("/")
        inside = root in ("sys", "proc") and bool(below) and not {"", ".", ".."} & set(below)
        if not inside or "\0" in state.path + state.text:
            raise RecordingError(f"{where}: {state.path[:80]!r} is no place in sysfs or procfs")
        yield state


def _file(seconds: Any, path: object, kind: Any, text: object) -> FileState:
    if kind not in get_args(Kind):
        raise ValueError(f"{kind!r:.40} is no kind of file")
    return FileState(_time(seconds), str(path), kind, str(text))


def _time(value: Any) -> float:
    seconds = float(value)
    if not 0 <= seconds <= _MOST_SECONDS:  # also true for NaN
        raise ValueError(f"{value!r} is no time")
    return seconds
