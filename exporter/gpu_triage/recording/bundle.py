"""A recording on disk: a folder, or the same as one ``.tar.gz``.

``recording.json``: what it is, when and for how long. ``nvml.jsonl``: one answer a line. ``files.jsonl``: one file,
link or folder of sysfs or procfs a line, again whenever it changed. ``kmsg``: the driver's records of the kernel log.
Everything is read into memory and checked: nothing is ever unpacked to where its names say.
"""

from __future__ import annotations

import errno
import io
import json
import stat
import tarfile
import zlib
from base64 import b64decode, b64encode
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from gpu_triage.errors import RecordingError

FORMAT: Final = "gpu-triage-recording"
VERSION: Final = 1

MOST_BYTES: Final = 256 << 20
"""Of one recording, unpacked."""
MOST_LINES: Final = 1_000_000
MOST_BLOB_BYTES: Final = 1 << 20
"""Of what one call wrote to one place; the largest there is lists processes."""

_LEAST_TEXT: Final = 4
_ARCHIVE: Final = ".tar.gz"
_ABOUT, _NVML, _FILES, _KMSG = "recording.json", "nvml.jsonl", "files.jsonl", "kmsg"
_PARTS: Final = (_ABOUT, _NVML, _FILES, _KMSG)

Kind = Literal["file", "link", "folder", "gone"]
_KINDS: Final[dict[str, Kind]] = {"file": "file", "link": "link", "folder": "folder", "gone": "gone"}


class Answer(NamedTuple):
    """What a call answered, from a time on.

    Attributes:
        seconds: since the recording began.
        key: of the call.
        code: what the function returned.
        outs: what was in the memory it writes to afterwards; None where that had not changed.
    """

    seconds: float
    key: str
    code: int
    outs: tuple[bytes | None, ...]


class FileState(NamedTuple):
    """A file, link or folder, from a time on.

    Attributes:
        seconds: since the recording began.
        path: below the root, ``sys/…`` or ``proc/…``.
        kind: what it is.
        text: of a file, or the target of a link.
    """

    seconds: float
    path: str
    kind: Kind
    text: str


@dataclass(frozen=True, slots=True)
class Recording:
    """A recorded host.

    Attributes:
        versions: of what recorded it (gpu_triage, python, nvidia_ml_py, kernel), for people.
        monotonic, wall: the instant at which it began.
        seconds: how long it lasted.
        missing: NVML functions that the library did not have.
        answers: in the order of time.
        files: in the order of time.
        kmsg: records of the kernel log, in its own format; None where it could not be read.
    """

    versions: Mapping[str, str]
    monotonic: float
    wall: float
    seconds: float
    missing: tuple[str, ...]
    answers: tuple[Answer, ...]
    files: tuple[FileState, ...]
    kmsg: str | None


def make_room(path: Path) -> None:
    """Make sure, before there is a recording, that it can be written to this path; makes the folder.

    Raises:
        RecordingError: it cannot be written there.
    """
    try:
        if path.name.endswith(_ARCHIVE):
            known = path.exists()
            path.open("ab").close()
            if not known:
                path.unlink()
            return
        path.mkdir(parents=True, exist_ok=True)
        if any(path.iterdir()):
            raise RecordingError(f"{path}: is not empty; name a new folder, or a file ending in {_ARCHIVE}")
    except OSError as error:
        raise _unwritable(path, error) from error


def write_recording(recording: Recording, path: Path) -> None:
    """Write a recording: one file if its name ends in ``.tar.gz``, else a new or empty folder.

    Raises:
        RecordingError: it cannot be written there.
    """
    make_room(path)
    # A name that is no UTF-8 becomes an escape of JSON.
    parts = {
        name: text.encode("utf-8", "backslashreplace") for name, text in zip(_PARTS, _texts(recording), strict=True)
    }
    try:
        if path.name.endswith(_ARCHIVE):
            with tarfile.open(path, "w:gz") as archive:
                for name, raw in parts.items():
                    member = tarfile.TarInfo(f"recording/{name}")
                    member.size, member.mtime = len(raw), int(recording.wall)
                    archive.addfile(member, io.BytesIO(raw))
            return
        for name, raw in parts.items():
            (path / name).write_bytes(raw)
    except OSError as error:
        raise _unwritable(path, error) from error


def _unwritable(path: Path, error: OSError) -> RecordingError:
    return RecordingError(f"{path}: cannot be written: {error.strerror or error}; name another place")


def read_recording(path: Path) -> Recording:
    """The recording in a folder or a ``.tar.gz``.

    Raises:
        RecordingError: it cannot be read, is too large, or is no recording; names the part and the line.
    """
    try:
        parts = _parts_of_folder(path) if path.is_dir() else _parts_of_archive(path)
    except (OSError, tarfile.TarError, EOFError, zlib.error) as error:
        why = getattr(error, "strerror", None) or error
        raise RecordingError(f"{path}: cannot be read: {why}; name what gpu-triage record wrote") from error
    lacking = [name for name in _PARTS if name not in parts]
    if lacking:
        raise RecordingError(f"{path}: has no {lacking[0]}; name what gpu-triage record wrote")
    try:
        return _recording({name: raw.decode("utf-8") for name, raw in parts.items()})
    except UnicodeDecodeError as error:
        raise RecordingError(f"{path}: is not UTF-8; record it anew") from error
    except RecordingError as error:
        raise RecordingError(f"{path}: {error}; record it anew") from error


def _texts(recording: Recording) -> Iterator[str]:
    about = {
        "format": FORMAT,
        "version": VERSION,
        "versions": dict(recording.versions),
        "monotonic": recording.monotonic,
        "wall": recording.wall,
        "seconds": recording.seconds,
        "missing_functions": list(recording.missing),
        "kmsg_readable": recording.kmsg is not None,
    }
    yield json.dumps(about, indent=2) + "\n"
    yield "".join(
        json.dumps([round(each.seconds, 3), json.loads(each.key), each.code, *map(_packed, each.outs)]) + "\n"
        for each in recording.answers
    )
    yield "".join(
        json.dumps([round(each.seconds, 3), each.path, each.kind, each.text], ensure_ascii=False) + "\n"
        for each in recording.files
    )
    yield recording.kmsg or ""


def _packed(raw: bytes | None) -> str | list[object] | None:
    """Memory as JSON: text as text, so that a person can see what is in a recording."""
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
        if not 0 <= size <= MOST_BLOB_BYTES:
            raise ValueError(f"an answer of {size} bytes")
        return str(text).encode().ljust(size, b"\0")
    text = str(packed)
    unpack = zlib.decompressobj()
    raw = unpack.decompress(b64decode(text, validate=True), MOST_BLOB_BYTES)
    if unpack.unconsumed_tail:
        raise ValueError(f"an answer of more than {MOST_BLOB_BYTES} bytes")
    return raw


def _parts_of_folder(path: Path) -> dict[str, bytes]:
    parts = {}
    left = MOST_BYTES
    for name in _PARTS:
        part = path / name
        if part.is_symlink() or not stat.S_ISREG(part.lstat().st_mode):
            raise RecordingError(f"{part}: is no file; name what gpu-triage record wrote")
        with part.open("rb") as file:
            parts[name] = _bounded(file.read(left + 1), left, path)
        left -= len(parts[name])
    return parts


def _parts_of_archive(path: Path) -> dict[str, bytes]:
    parts: dict[str, bytes] = {}
    left = MOST_BYTES
    if not stat.S_ISREG(path.stat().st_mode):
        # Opening a pipe would wait for somebody who writes into it.
        raise OSError(errno.EINVAL, "is no file")
    with tarfile.open(path, "r|gz") as archive:
        for count, member in enumerate(archive):
            name = member.name.removeprefix("recording/")
            if count >= len(_PARTS) or name not in _PARTS or name in parts or not member.isreg():
                raise RecordingError(f"{path}: holds {member.name[:80]!r}; name what gpu-triage record wrote")
            file = archive.extractfile(member)
            parts[name] = _bounded(file.read(left + 1) if file else b"", left, path)
            left -= len(parts[name])
    return parts


def _bounded(raw: bytes, left: int, path: Path) -> bytes:
    if len(raw) > left:
        raise RecordingError(f"{path}: is larger than {MOST_BYTES >> 20} MiB; record a shorter watch")
    return raw


def _recording(parts: dict[str, str]) -> Recording:
    try:
        about: dict[str, Any] = json.loads(parts[_ABOUT])
        _check_format(about)
        return Recording(
            versions={str(name): str(version) for name, version in about["versions"].items()},
            monotonic=_seconds(about["monotonic"]),
            wall=_seconds(about["wall"]),
            seconds=_seconds(about["seconds"]),
            missing=tuple(map(str, about["missing_functions"])),
            answers=tuple(_answers(parts)),
            files=tuple(_file(line, where) for line, where in _lines(parts, _FILES)),
            kmsg=parts[_KMSG] if about["kmsg_readable"] else None,
        )
    except (ValueError, TypeError, AttributeError, KeyError, RecursionError) as error:
        raise RecordingError(f"{_ABOUT}: cannot be understood: {error!r:.80}") from error


def _check_format(about: dict[str, Any]) -> None:
    if about["format"] != FORMAT:
        raise RecordingError(f"{_ABOUT}: format is not {FORMAT!r}")
    if about["version"] != VERSION:
        raise RecordingError(f"{_ABOUT}: version is {about['version']!r}, this program knows {VERSION}")


def _lines(parts: dict[str, str], name: str) -> Iterator[tuple[str, str]]:
    lines = parts[name].split("\n")
    if len(lines) > MOST_LINES:
        raise RecordingError(f"{name}: has more than {MOST_LINES} lines")
    for number, line in enumerate(lines, start=1):
        if line:
            yield line, f"{name}: line {number}"


def _answers(parts: dict[str, str]) -> Iterator[Answer]:
    size = 0
    for line, where in _lines(parts, _NVML):
        answer = _answer(line, where)
        size += sum(len(out) for out in answer.outs if out is not None)
        if size > MOST_BYTES:
            raise RecordingError(f"{where}: the answers are larger than {MOST_BYTES >> 20} MiB when unpacked")
        yield answer


def _answer(line: str, where: str) -> Answer:
    try:
        seconds, key, code, *outs = json.loads(line)
        return Answer(_seconds(seconds), _key(key), int(code), tuple(map(_unpacked, outs)))
    except (ValueError, TypeError, AttributeError, LookupError, RecursionError, zlib.error) as error:
        raise RecordingError(f"{where}: is no answer of NVML") from error


def _key(raw: object) -> str:
    if not isinstance(raw, list) or not raw or not isinstance(raw[0], str):
        raise TypeError(f"{raw!r:.40} does not start with a function's name")
    return json.dumps(raw)


def _file(line: str, where: str) -> FileState:
    try:
        seconds, path, kind, text = json.loads(line)
        state = FileState(_seconds(seconds), str(path), _KINDS[kind], str(text))
        parts = state.path.split("/")
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise RecordingError(f"{where}: is no file of sysfs or procfs") from error
    inside = parts[0] in ("sys", "proc") and bool(parts[1:]) and not {"", ".", ".."} & set(parts)
    if not inside or "\0" in state.path + state.text:
        raise RecordingError(f"{where}: {state.path[:80]!r} is no place in sysfs or procfs")
    return state


def _seconds(value: Any) -> float:
    seconds = float(value)
    if not 0 <= seconds < 1e11:  # noqa: PLR2004 - beyond any clock; NaN is not either
        raise ValueError(f"{value!r} is no time")
    return seconds
