"""What is read from a recording is checked: corrupt ones are refused with a reason, hostile ones do no harm.

Lists of processes fit buffers of any length.
"""

import gzip
import io
import itertools
import json
import os
import re
import tarfile
import tracemalloc
import zlib
from base64 import b64encode
from collections.abc import Callable
from ctypes import c_void_p
from dataclasses import replace
from pathlib import Path

import pynvml
import pytest

from gpu_triage.driver.nvml.lists import read_list
from gpu_triage.errors import RecordingError
from gpu_triage.record.bundle import prepare_target, read_recording, write_recording
from gpu_triage.record.recording import FAILED, FOUND, Recording, TimedAnswer
from gpu_triage.record.replay import ReplayedFiles, ReplayedNvml


def _rewritten(recorded: Path, part: str, change: Callable[[str], str]) -> Path:
    path = recorded / part
    path.write_text(change(path.read_text()), errors="surrogateescape")
    return recorded


def _line(part: str, line: str) -> tuple[str, Callable[[str], str], str]:
    """A line in front of a part, which is refused."""
    return part, lambda text: f"{line}\n{text}", f"{part}: line 1: is no answer"


def _wall(value: str) -> tuple[str, Callable[[str], str], str]:
    return "recording.json", lambda text: re.sub(r'"wall": [0-9.]+', f'"wall": {value}', text), "recording.json: "


DIGITS = "9" * 400
CORRUPT: dict[str, tuple[str, Callable[[str], str], str]] = {
    "no JSON": ("recording.json", lambda _: "{", "recording.json: line 1: is not valid JSON"),
    "a list": ("recording.json", lambda _: "[]", "recording.json: format: is None"),
    "deep": ("recording.json", lambda _: "[" * 100_000, "recording.json: is nested too deeply"),
    "another format": ("recording.json", lambda s: s.replace("gpu-triage-r", "x"), "format: is"),
    "a newer version": ("recording.json", lambda s: s.replace('"version": 1', '"version": 2'), "this program reads 1"),
    "a key twice": ("recording.json", lambda s: s.replace('"wall"', '"wall": 0, "wall"'), "'wall' is written twice"),
    "an unknown key": ("recording.json", lambda s: s.replace('"wall": ', '"well": 0, "wall": '), "did you mean wall?"),
    "a day": (
        "recording.json",
        lambda s: re.sub(r'"seconds": [0-9.]+', '"seconds": 86400', s),
        "recording.json: seconds: is 86400; write a number from 0 to 3600",
    ),
    **{f"a time of {each[:5]}": _wall(each) for each in ("-1", "1e999", "NaN", DIGITS, "9" * 5000, '"1"', "[]")},
    **{
        f"{part}: {each[:5]}": _line(part, line.replace("TIME", each))
        for each in ("-1", "1e999", "NaN", DIGITS, "9" * 5000, '"soon"', "[]", "{}", "null")
        for part, line in (("files.jsonl", '[TIME, "text sys/a", 1]'), ("nvml.jsonl", '[TIME, ["f"], 0]'))
    },
    **{
        f"an answer of NVML: {each[:30]}": _line("nvml.jsonl", each)
        for each in (
            *("1", "[", "[" * 100_000, '{"a": 1}', "[0]", "[0, [], 0]", '[0, "x", 0]', "[0, [1], 0]"),
            *('[0, ["f", [[0]]], 0]', '[0, ["f", {}], 0]', '[0, ["f"], 1e999]', f'[0, ["f"], {DIGITS}]'),
            *('[0, ["f"], null]', '[0, ["f"], 0, "%"]', '[0, ["f"], 0, "AAAA"]', '[0, ["f"], 0, 7]'),
            *('[0, ["f"], 0, ["x"]]', '[0, ["f"], 0, ["x", 99999999999]]', '[0, ["f"], 0, ["x", 1e999]]'),
            *('[0, ["f"], 0, ["\\ud800", 9]]', f'[0, ["f"], 0{", null" * 17}]'),
            json.dumps([0, ["f"], 0, b64encode(zlib.compress(b"\0" * (64 << 20))).decode()]),
        )
    },
    **{
        f"an answer about a file: {each[:30]}": _line("files.jsonl", each)
        for each in (
            *("{}", "[" * 100_000, '[0, "text sys/a"]', '[0, "pipe sys/a", 1]', "[0, [], 1]", '[0, "text sys/a", 3]'),
            *('[0, "text 7", 1]', '[0, "text etc/passwd", 1]', '[0, "text /etc/passwd", 1]', '[0, "text sys/a", 0]'),
            *('[0, "text sys/a", 2]', '[0, "text sys/a", 0, 7]', '[0, "text sys/a", 0, null]'),
            *('[0, "text sys/a", 1, ["text", 4]]', '[0, "text sys/a", 0, ["text", 4], ["text", 4]]'),
            *(
                '[0, "text sys/a", 0, ["\\ud800", 9]]',
                '[0, "text sys/a", 2, ["\\u001b[31m", 5]]',
                '[0, "text sys/a", 2, ["x", 1], null]',
            ),
        )
    },
    "bytes": ("kmsg", lambda _: "\udcff", "kmsg: is not UTF-8"),
    "one line": ("files.jsonl", lambda _: '[0, "text sys/a", 0, ["' + "x" * (9 << 20), "more than 8 MiB in a line"),
}


@pytest.mark.slow
@pytest.mark.parametrize(("part", "change", "complaint"), CORRUPT.values(), ids=CORRUPT.keys())
def test_a_corrupt_part_is_named(recorded: Path, part: str, change: Callable[[str], str], complaint: str) -> None:
    with pytest.raises(RecordingError, match=re.escape(complaint)) as refused:
        read_recording(_rewritten(recorded, part, change))
    assert str(refused.value).startswith(str(recorded))


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
    "a link": (lambda path: _archive(path, (_link_member(), b"")), "has no recording.json"),
    "a part twice": (lambda path: _archive(path, *[(tarfile.TarInfo("recording/kmsg"), b"")] * 2), "holds 'kmsg'"),
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
    with pytest.raises(RecordingError, match="is larger than 3 MiB when unpacked"):
        read_recording(recorded)


@pytest.mark.parametrize("row", [b"x" * 4096, b"\n" * 4096, b"{}\n" + b" " * 4093])
def test_of_a_large_part_only_a_line_is_in_memory(recorded: Path, row: bytes) -> None:
    (recorded / "nvml.jsonl").write_bytes(row * (24 << 8))
    tracemalloc.start()
    try:
        with pytest.raises(RecordingError, match=r"nvml.jsonl: (has more than|line 1: is no answer)"):
            read_recording(recorded)
        assert tracemalloc.get_traced_memory()[1] < 32 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(("part", "most"), [("recording.json", 1), ("kmsg", 32), ("verdict.json", 32)])
def test_a_part_that_is_read_whole_is_small(recorded: Path, part: str, most: int) -> None:
    (recorded / part).write_bytes(b" " * (most + 1 << 20))
    with pytest.raises(RecordingError, match=f"only the first {most} MiB were read; name what"):
        read_recording(recorded)


def test_a_path_of_many_folders_costs_no_more_memory_than_itself(recorded: Path) -> None:
    path = "sys/" + "a/" * 8000 + "b"
    _rewritten(recorded, "files.jsonl", lambda text: text + json.dumps([0, f"text {path}", 0, ["text", 4]]) + "\n")
    recording = read_recording(recorded)
    tracemalloc.start()
    try:
        files = ReplayedFiles(recording, lambda: 0.0)
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()
    presence = [files("presence", each, lambda: b"") for each in ("sys/a/a", path, "sys/a/b", f"{path}/b", "sys/")]
    assert presence == [b"", b"", None, None, None]


@pytest.mark.parametrize("form", ["folder", "archive"])
def test_a_recording_is_bounded_in_size_in_time_and_in_lines(
    tmp_path: Path, recorded: Path, recording: Recording, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    path = recorded if form == "folder" else tmp_path / "recording.tar.gz"
    write_recording(recording, path)
    assert read_recording(path).files == read_recording(recorded).files
    ticks = itertools.count(0, 1000.0)
    with pytest.raises(RecordingError, match="only what could be read within 120 s was read; name what"):
        read_recording(path, lambda: next(ticks))
    monkeypatch.setattr("gpu_triage.record.bundle._MOST_LINES", 10)
    with pytest.raises(RecordingError, match=r"nvml.jsonl: has more than 10 lines"):
        read_recording(path)
    monkeypatch.setattr("gpu_triage.record.bundle.MOST_BYTES", 1000)
    with pytest.raises(RecordingError, match="only the first 0 MiB were read; name what"):
        read_recording(path)


def test_a_header_that_claims_a_gibibyte_costs_no_memory(tmp_path: Path) -> None:
    for size in (1 << 30, 1 << 60):
        member = tarfile.TarInfo("recording/recording.json")
        member.size = size
        path = tmp_path / "recording.tar.gz"
        path.write_bytes(gzip.compress(member.tobuf(tarfile.GNU_FORMAT) + b"{"))
        tracemalloc.start()
        try:
            with pytest.raises(RecordingError, match="cannot be read"):
                read_recording(path)
            assert tracemalloc.get_traced_memory()[1] < 4 << 20
        finally:
            tracemalloc.stop()


@pytest.mark.parametrize("name", ["written", "written.tar.gz"])
def test_names_that_are_no_utf_8_failures_and_long_lists_survive_as_they_are(
    tmp_path: Path, recording: Recording, name: str
) -> None:
    odd = TimedAnswer(0.0, "link sys/class/net/et\udcffh", FOUND, (b"../../devices/\x80",))
    failed = TimedAnswer(1.0, "text proc/1/io", FAILED, (b"no_permission",))
    many = TimedAnswer(2.0, "names proc", FOUND, ("/".join(map(str, range(1_000_000, 1_170_000))).encode(),))
    write_recording(replace(recording, files=(*recording.files, odd, failed, many)), tmp_path / name)
    assert read_recording(tmp_path / name).files[-3:] == (odd, failed, many)


@pytest.mark.parametrize("name", ["recording.tar.gz", "recording"])
def test_a_recording_is_never_written_through_a_link(tmp_path: Path, recording: Recording, name: str) -> None:
    victim, path = tmp_path / "victim", tmp_path / name
    victim.write_text("precious")
    links = [path, tmp_path / f".{name}.new"]
    if name == "recording":
        write_recording(recording, path)
        links = list(path.iterdir())
    for link in links:
        link.unlink(missing_ok=True)
        link.symlink_to(victim)
    write_recording(recording, path)
    assert read_recording(path).files == recording.files
    assert victim.read_text() == "precious"
    if name == "recording.tar.gz":
        path.unlink()
        path.symlink_to(tmp_path / "nothing")
        with pytest.raises(RecordingError, match="exists"):
            prepare_target(path)
        assert not (tmp_path / "nothing").exists()


FUNCTION = "nvmlDeviceGetComputeRunningProcesses_v3"
_ENTRY = pynvml.c_nvmlProcessInfo_v3_t
PRESENT = 100.0


def answered(seconds: float, room: int | None, *pids: int, full: bool = False) -> TimedAnswer:
    """As an exporter recorded it that had a buffer of this many entries, or none."""
    size = None if room is None else room * 24
    key = json.dumps([FUNCTION, "@7", 4, size, "#0123456789abcdef"])
    count = None if full or (room is None and not pids) else len(pids).to_bytes(4, "little")
    if room is None:
        return TimedAnswer(seconds, key, 7 if pids else 0, (count,))
    entries = (_ENTRY * room)(*(_ENTRY(pid=pid) for pid in pids))
    return TimedAnswer(seconds, key, 0, (count, bytes(entries)))


MORE_BUFFERS = answered(1, 11, 4, 5, 6)._replace(outs=(*answered(1, 11, 4, 5, 6).outs, b"x"))
"""As no exporter records it."""


def replayed(monkeypatch: pytest.MonkeyPatch, *answers: TimedAnswer) -> list[int]:
    recording = Recording({}, 0.0, 0.0, PRESENT, answers, (), None)
    library = ReplayedNvml(recording, lambda: PRESENT)
    monkeypatch.setitem(pynvml._nvmlGetFunctionPointer_cache, FUNCTION, getattr(library, FUNCTION))
    return [process.pid for process in read_list(FUNCTION, c_void_p(7))]


@pytest.mark.parametrize(
    "answers",
    [
        pytest.param((answered(1, None, 4, 5, 6), answered(1, 11, 4, 5, 6)), id="counted first"),
        pytest.param((answered(1, 405, 4, 5, 6),), id="a longer buffer"),
        pytest.param((answered(1, 3, 4, 5, 6, full=True),), id="a full buffer"),
        pytest.param((answered(1, None), answered(2, 11, 4, 5, 6)), id="the latest"),
        pytest.param((MORE_BUFFERS,), id="more buffers than there are"),
    ],
)
def test_a_recorded_list_fits_any_buffer(monkeypatch: pytest.MonkeyPatch, answers: tuple[TimedAnswer, ...]) -> None:
    assert replayed(monkeypatch, *answers) == [4, 5, 6]


def test_a_list_is_read_whole_although_longer_than_the_first_buffer_or_empty(monkeypatch: pytest.MonkeyPatch) -> None:
    assert replayed(monkeypatch, answered(1, 11, 4), answered(2, None)) == []
    assert replayed(monkeypatch, answered(1, 405, *range(200))) == list(range(200))
