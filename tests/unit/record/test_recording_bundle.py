"""What is read from a recording is checked: corrupt ones are refused with a reason, hostile ones do no harm."""

from __future__ import annotations

import gzip
import io
import json
import os
import re
import tarfile
import zlib
from base64 import b64encode
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpu_triage.errors import RecordingError
from gpu_triage.record.bundle import read_recording, write_recording
from gpu_triage.record.recording import FileState, Recording
from gpu_triage.record.replay import ReplayedTree


def _rewritten(recorded: Path, part: str, change: Callable[[str], str]) -> Path:
    path = recorded / part
    path.write_text(change(path.read_text()))
    return recorded


def _bomb() -> str:
    return b64encode(zlib.compress(b"\0" * (64 << 20))).decode()


CORRUPT: dict[str, tuple[str, Callable[[str], str], str]] = {
    "no JSON": ("recording.json", lambda _: "{", "recording.json: line 1: is not valid JSON"),
    "a list": ("recording.json", lambda _: "[]", "recording.json: format: is None"),
    "another format": ("recording.json", lambda s: s.replace("gpu-triage-r", "x"), "format: is"),
    "a newer version": ("recording.json", lambda s: s.replace('"version": 1', '"version": 2'), "this program reads 1"),
    "a key twice": (
        "recording.json",
        lambda s: s.replace('"wall": ', '"wall": 0, "wall": '),
        "'wall' is written twice",
    ),
    "an unknown key": ("recording.json", lambda s: s.replace('"wall": ', '"well": 0, "wall": '), "did you mean wall?"),
    "no time": ("recording.json", lambda s: s.replace('"wall": ', '"wall": -'), "recording.json: wall: is -"),
    "an endless time": ("files.jsonl", lambda s: '[NaN, "sys/a", "file", ""]\n' + s, "files.jsonl: line 1"),
    "half a line": ("nvml.jsonl", lambda s: s[: len(s) // 2], "is no answer of NVML"),
    "no key": ("nvml.jsonl", lambda s: s + "[0, [], 0]\n", "is no answer of NVML"),
    "a key that is text": ("nvml.jsonl", lambda s: s + '[0, "x", 0]\n', "is no answer of NVML"),
    "no base64": ("nvml.jsonl", lambda s: s + '[0, ["f"], 0, "%"]\n', "is no answer of NVML"),
    "no zlib": ("nvml.jsonl", lambda s: s + '[0, ["f"], 0, "AAAA"]\n', "is no answer of NVML"),
    "huge memory": ("nvml.jsonl", lambda s: s + '[0, ["f"], 0, ["x", 99999999999]]\n', "is no answer of NVML"),
    "a bomb": ("nvml.jsonl", lambda s: s + json.dumps([0, ["f"], 0, _bomb()]) + "\n", "is no answer of NVML"),
    "deep": ("nvml.jsonl", lambda s: s + "[" * 100_000 + "\n", "is no answer of NVML"),
    "an unknown kind": ("files.jsonl", lambda s: s + '[0, "sys/a", "pipe", ""]\n', "is no file of sysfs"),
    "a place outside": ("files.jsonl", lambda s: s + '[0, "etc/passwd", "file", ""]\n', "is no place in sysfs"),
    "a way out": ("files.jsonl", lambda s: s + '[0, "sys/../../x", "file", ""]\n', "is no place in sysfs"),
    "an absolute path": ("files.jsonl", lambda s: s + '[0, "/etc/x", "file", ""]\n', "is no place in sysfs"),
    "a zero byte": ("files.jsonl", lambda s: s + '[0, "sys/a\\u0000", "file", ""]\n', "is no place in sysfs"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("part", "change", "complaint"), CORRUPT.values(), ids=CORRUPT.keys())
def test_a_corrupt_recording_is_refused_naming_the_part(
    recorded: Path, part: str, change: Callable[[str], str], complaint: str
) -> None:
    with pytest.raises(RecordingError, match=re.escape(complaint)) as refused:
        read_recording(_rewritten(recorded, part, change))
    assert str(refused.value).startswith(str(recorded))


ESCAPES = {
    "a link out": [("sys/a", "link", "../../../etc")],
    "an absolute link": [("sys/a", "link", "/etc")],
    "a file through a link made in two steps": [
        ("sys/d/e", "folder", ""),
        ("sys/a", "link", "d/e"),
        ("sys/b", "link", "a/../../../.."),
        ("sys/b/x", "file", "x"),
    ],
    "a link to the root": [("sys/a", "link", "..")],
}


@pytest.mark.parametrize("states", ESCAPES.values(), ids=ESCAPES.keys())
def test_nothing_is_written_outside_the_replayed_tree(tmp_path: Path, states: list[tuple[str, Any, str]]) -> None:
    root = tmp_path / "outer" / "root"
    root.mkdir(parents=True)
    with pytest.raises(RecordingError, match="leads out of the recording"):
        ReplayedTree(tuple(FileState(0.0, *state) for state in states), root)
    assert {path.name for path in tmp_path.rglob("*")} <= {"outer", "root", "sys", "proc", "a", "d", "e"}


@pytest.mark.parametrize(
    "states",
    [
        [("sys/a", "file", ""), ("sys/a/b", "file", "")],
        [("sys/a", "link", "a"), ("sys/a/b", "file", "")],
        [("sys/" + "x" * 300, "file", "")],
    ],
)
def test_files_that_cannot_be_are_an_error(tmp_path: Path, states: list[tuple[str, Any, str]]) -> None:
    with pytest.raises(RecordingError, match="cannot be made"):
        ReplayedTree(tuple(FileState(0.0, *state) for state in states), tmp_path)


def _archive(path: Path, *members: tuple[tarfile.TarInfo, bytes]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for member, raw in members:
            member.size = len(raw)
            archive.addfile(member, io.BytesIO(raw))
    return path


def _holding(path: Path, raw: bytes) -> Path:
    path.write_bytes(raw)
    return path


def _link_member() -> tarfile.TarInfo:
    member = tarfile.TarInfo("recording/kmsg")
    member.type, member.linkname = tarfile.SYMTYPE, "/etc/passwd"
    return member


def _pipe(path: Path) -> Path:
    os.mkfifo(path)
    return path


HOSTILE: dict[str, tuple[Callable[[Path], Path], str]] = {
    "no archive": (lambda path: _holding(path, b"x"), "cannot be read"),
    "a cut archive": (lambda path: _holding(path, gzip.compress(b"x" * 2000)[:20]), "cannot be read"),
    "a place outside": (lambda path: _archive(path, (tarfile.TarInfo("../../x"), b"")), "holds '../../x'"),
    "a link": (lambda path: _archive(path, (_link_member(), b"")), "holds 'recording/kmsg'"),
    "a part twice": (
        lambda path: _archive(path, *[(tarfile.TarInfo("recording/kmsg"), b"")] * 2),
        "holds 'recording/kmsg'",
    ),
    "a part too few": (lambda path: _archive(path, (tarfile.TarInfo("recording/kmsg"), b"")), "has no recording.json"),
    "a pipe": (_pipe, "cannot be read: is no file; name what"),
    "nothing": (lambda path: path, "cannot be read: No such file or directory; name what"),
}


@pytest.mark.parametrize(("make", "complaint"), HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_archive_is_refused(tmp_path: Path, make: Callable[[Path], Path], complaint: str) -> None:
    with pytest.raises(RecordingError, match=re.escape(complaint)):
        read_recording(make(tmp_path / "recording.tar.gz"))


def test_answers_that_grow_when_unpacked_are_bounded(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = json.dumps([0, ["f"], 0, b64encode(zlib.compress(b"\0" * 500_000)).decode()]) + "\n"
    _rewritten(recorded, "nvml.jsonl", lambda text: text + line * 10)
    monkeypatch.setattr("gpu_triage.record.bundle.MOST_BYTES", 3 << 20)
    with pytest.raises(RecordingError, match="the answers are larger than 3 MiB when unpacked"):
        read_recording(recorded)


def test_a_recording_is_bounded(recorded: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gpu_triage.record.bundle.MOST_BYTES", 1000)
    with pytest.raises(RecordingError, match="is larger than"):
        read_recording(recorded)


@pytest.mark.parametrize("name", ["written", "written.tar.gz"])
def test_names_that_are_no_utf_8_are_written_and_read_as_they_are(
    tmp_path: Path, recording: Recording, name: str
) -> None:
    odd = FileState(0.0, "sys/class/net/et\udcffh", "link", "../../devices/\udc80")
    written = replace(recording, files=(*recording.files, odd))
    write_recording(written, tmp_path / name)
    assert read_recording(tmp_path / name).files[-1] == odd
