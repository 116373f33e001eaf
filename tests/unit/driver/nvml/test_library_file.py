"""A driver's library that cannot be loaded, or was cut short: loading that one would end the process."""

import struct
from pathlib import Path

import pynvml
import pytest
from tests.stand_in_library import NAME, compile_library

from gpu_triage.driver.nvml import session
from gpu_triage.driver.nvml.library_file import library_paths, refuse_cut_short
from gpu_triage.errors import DriverUnavailable
from gpu_triage.machine import SystemNvml

pytestmark = pytest.mark.slow


@pytest.fixture
def library(tmp_path: Path, repository: Path) -> Path:
    folder = tmp_path / "driver"
    folder.mkdir()
    compile_library(repository / "tests" / "faults" / "stand_in.c", folder)
    return folder / NAME


def segments_end(content: bytes) -> int:
    """Where the last segment that is mapped ends."""
    (table,) = struct.unpack_from("=Q", content, 32)
    (count,) = struct.unpack_from("=H", content, 56)
    entries = [struct.unpack_from("=II6Q", content, table + 56 * number) for number in range(count)]
    return max(int(entry[2] + entry[5]) for entry in entries if entry[0] == 1)


def test_a_whole_library_is_loaded_and_so_is_one_that_lost_only_its_section_table(library: Path) -> None:
    refuse_cut_short([library])
    content = library.read_bytes()
    library.write_bytes(content[: segments_end(content)])
    refuse_cut_short([library])


def test_a_library_cut_anywhere_before_the_end_of_what_is_mapped_is_refused(library: Path) -> None:
    content = library.read_bytes()
    end = segments_end(content)
    for size in (*range(64, end, 997), end - 1):
        library.write_bytes(content[:size])
        with pytest.raises(DriverUnavailable, match=f"has {size} of at least") as refused:
            refuse_cut_short([library])
        assert refused.value.reason == "library_invalid"


@pytest.mark.parametrize(
    "content", [b"", b"no library", b"\x7fELF\x02\x01", b"\x7fELF\x01\x01" + bytes(100), bytes(200)]
)
def test_what_the_linker_refuses_by_itself_or_passes_over_is_left_to_it(library: Path, content: bytes) -> None:
    other = library.with_name("other")
    other.write_bytes(content)
    refuse_cut_short([other, library])
    library.write_bytes(library.read_bytes()[:5000])
    with pytest.raises(DriverUnavailable):
        refuse_cut_short([other, library])


def test_the_first_library_that_can_be_loaded_is_the_one_that_counts(library: Path, tmp_path: Path) -> None:
    cut = tmp_path / "cut"
    cut.write_bytes(library.read_bytes()[:5000])
    refuse_cut_short([tmp_path / "missing", tmp_path, library, cut])


def test_it_is_looked_for_where_the_linker_does(tmp_path: Path) -> None:
    cache = tmp_path / "ld.so.cache"
    cache.write_bytes(
        b"glibc-ld.so.cache1.1\0\1\2/\3\0libnvidia-ml.so.1\0/opt/driver/libnvidia-ml.so.1\0/lib/libc.so.6\0"
    )
    paths = [str(path) for path in library_paths("/first:/second", cache)]
    assert paths[:3] == ["/first/" + NAME, "/second/" + NAME, "/opt/driver/" + NAME]
    assert str(next(library_paths("", tmp_path / "none"))) == "/lib64/" + NAME


@pytest.mark.parametrize(
    ("cause", "reason"),
    [
        (f"{NAME}: cannot open shared object file: No such file or directory", "library_not_found"),
        ("libcuda.so.1: cannot open shared object file: No such file or directory", "library_invalid"),
        (f"{NAME}: invalid ELF header", "library_invalid"),
    ],
)
def test_a_library_that_is_missing_is_told_from_one_that_cannot_be_loaded(
    monkeypatch: pytest.MonkeyPatch, cause: str, reason: str
) -> None:
    def refuse(_name: str) -> None:
        raise OSError(cause)

    monkeypatch.setattr(pynvml, "nvmlLib", None)
    monkeypatch.setattr(pynvml, "CDLL", refuse)
    monkeypatch.setattr(session, "refuse_cut_short", lambda: None)
    with pytest.raises(DriverUnavailable) as refused:
        session.Session(SystemNvml()).open()
    assert (refused.value.reason, str(refused.value)) == (reason, f"{reason}: {cause}")
