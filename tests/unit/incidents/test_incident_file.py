"""The ledger's file: whatever is in it, reading gives a memory or a named error, and writing never spoils it."""

from __future__ import annotations

import json
import os
import resource
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_triage.errors import DocumentError, StateError
from gpu_triage.incidents.file import (
    MOST_BYTES,
    VERSION,
    decode,
    encode,
    read_memory,
    set_aside,
    write_memory,
)
from gpu_triage.incidents.ledger import MOST_INCIDENTS, Board, Incident, Memory

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

INCIDENT = Incident("79", "GPU-1", "1320", "0000:65:00.0", 1.7e9, 1.7e9 + 5, "boot", 5.0)
MEMORY = Memory("boot", 8, {"GPU-1": Board("GPU-1", "1320", "0000:65:00.0", 1.7e9, "boot", 2.0, 0)}, (INCIDENT,))


def reason_of(content: bytes) -> str:
    with pytest.raises(DocumentError) as raised:
        decode(content, "incidents.json")
    return raised.value.reason


def changed(**fields: Any) -> bytes:
    return json.dumps(json.loads(encode(MEMORY)) | fields).encode()


def test_what_is_written_is_read(tmp_path: Path) -> None:
    path = tmp_path / "incidents.json"
    assert read_memory(path) is None
    write_memory(path, MEMORY)
    assert read_memory(path) == MEMORY
    write_memory(path, Memory())
    assert read_memory(path) == Memory()
    assert [entry.name for entry in tmp_path.iterdir()] == ["incidents.json"]


def test_the_largest_ledger_fits() -> None:
    longest = Incident("lost", "G" * 45, "9" * 20, "0000:65:00.0", 1.7e9 + 0.123, 1.7e9 + 0.456, "b" * 36, 123456.789)
    boards = {f"GPU-{number:036}": Board(f"GPU-{number:036}", "9" * 20, "0" * 12) for number in range(256)}
    assert len(encode(Memory("b" * 36, 8, boards, (longest,) * MOST_INCIDENTS))) < MOST_BYTES


@pytest.mark.parametrize("kept", range(0, len(encode(MEMORY)) - 2, 7))
def test_a_truncated_file_is_malformed(kept: int) -> None:
    assert reason_of(encode(MEMORY)[:kept]) == "malformed"


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x00" * 4096,
        b"\xff\xfe\x00garbage",
        b"[]",
        b"null",
        b"{}",
        b'{"version": 1}',
        b"[" * 100_000,
        b'{"version": 1, "boot": ' + b"9" * 10_000 + b"}",
        encode(MEMORY).replace(b'"boot": "boot"', b'"boot": "boot", "boot": "boot"'),
        changed(boot=7),
        changed(boot="x" * 81),
        changed(boot="a b"),
        changed(most_gpus=-1),
        changed(most_gpus=1e300),
        changed(most_gpus=True),
        changed(boards={}),
        changed(boards=[7]),
        changed(boards=[{}]),
        changed(boards=[asdict(Board(f"GPU-{number}")) for number in range(257)]),
        changed(boards=[asdict(Board("GPU-1")) | {"uncorrected": -1}]),
        changed(boards=[asdict(Board("GPU-1")) | {"recovery_action": 1.5}]),
        changed(incidents="all"),
        changed(incidents=[asdict(INCIDENT)] * (MOST_INCIDENTS + 1)),
        changed(incidents=[asdict(INCIDENT) | {"kind": "<script>"}]),
        changed(incidents=[asdict(INCIDENT) | {"kind": None}]),
        changed(incidents=[asdict(INCIDENT) | {"last_at": "now"}]),
        changed(incidents=[asdict(INCIDENT) | {"last_at": 1e200}]),
        changed(incidents=[asdict(INCIDENT) | {"last_at": 1.0}]),
        changed(incidents=[asdict(INCIDENT) | {"uptime_seconds": float("nan")}]),
        changed(incidents=[asdict(INCIDENT) | {"first_at": float("-inf")}]),
        changed(incidents=[{key: value for key, value in asdict(INCIDENT).items() if key != "slot"}]),
    ],
)
def test_nothing_of_a_wrong_file_is_believed(content: bytes) -> None:
    assert reason_of(content) == "malformed"


@pytest.mark.parametrize("version", [0, VERSION + 1, "1" * 1000, None, [1]])
def test_a_file_of_another_version_is_named_as_such(version: object) -> None:
    assert reason_of(changed(version=version)) == "unknown_version"


@given(st.binary(max_size=400))
def test_no_bytes_are_too_strange(content: bytes) -> None:
    with pytest.raises(DocumentError):
        decode(content, "incidents.json")


NAMES = st.from_regex(r"[A-Za-z0-9_.:-]{0,80}", fullmatch=True)
TIMES = st.floats(0, 1e11)


@given(
    st.lists(
        st.builds(
            lambda kind, uuid, slot, times, uptime: Incident(kind, uuid, "", slot, min(times), max(times), "", uptime),
            st.sampled_from(["79", "99999", "lost", "uncorrected", "reset"]),
            NAMES,
            NAMES,
            st.tuples(TIMES, TIMES),
            TIMES,
        ),
        max_size=20,
    )
)
def test_every_ledger_survives_the_file(incidents: list[Incident]) -> None:
    memory = Memory("boot", 8, {}, tuple(incidents))
    assert decode(encode(memory), "incidents.json") == memory


def test_a_file_that_is_too_large_is_not_read_whole(tmp_path: Path) -> None:
    path = tmp_path / "incidents.json"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(StateError, match="larger than 1 MiB"):
        read_memory(path)


def test_a_pipe_or_a_folder_in_its_place_is_no_file(tmp_path: Path) -> None:
    pipe, folder = tmp_path / "pipe", tmp_path / "folder"
    os.mkfifo(pipe)
    folder.mkdir()
    for path in (pipe, folder):
        with pytest.raises(StateError) as raised:
            read_memory(path)
        assert raised.value.reason == "not_a_file"


def test_a_wrong_file_is_set_aside_over_the_one_before(tmp_path: Path) -> None:
    path = tmp_path / "incidents.json"
    for content in ("first", "second"):
        path.write_text(content)
        aside = set_aside(path)
        assert aside.read_text() == content
    assert [entry.name for entry in tmp_path.iterdir()] == ["incidents.json.corrupt"]


@contextmanager
def largest_file(size: int) -> Iterator[None]:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_disk_that_takes_no_more_leaves_the_old_file(tmp_path: Path) -> None:
    path = tmp_path / "incidents.json"
    write_memory(path, MEMORY)
    with largest_file(100), pytest.raises(StateError) as raised:
        write_memory(path, Memory(incidents=(INCIDENT,) * 100))
    assert raised.value.reason == "io_error"
    assert read_memory(path) == MEMORY
    write_memory(path, Memory())
    assert [entry.name for entry in tmp_path.iterdir()] == ["incidents.json"]


def test_a_folder_that_is_not_there_is_named_with_the_next_step(tmp_path: Path) -> None:
    with pytest.raises(StateError, match="create the directory or mount the volume") as raised:
        write_memory(tmp_path / "none" / "incidents.json", MEMORY)
    assert raised.value.reason == "missing"


def test_a_link_in_the_place_of_the_new_file_is_not_followed(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / ".incidents.json.new").symlink_to(victim)
    with pytest.raises(StateError):
        write_memory(tmp_path / "incidents.json", MEMORY)
    assert victim.read_text() == "precious"
