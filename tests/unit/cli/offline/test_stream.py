"""Whatever bytes are packed with and wherever they are cut, they come out as they were, and never more than bounded."""

import bz2
import gzip
import io
import lzma
import tarfile
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import reduce

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from gpu_triage.cli.offline.lines import LONGEST_LINE, pieces
from gpu_triage.documents.stream import CHUNK_BYTES, Budget, Stream, is_tar, members, opened, unpacked

MIB = 1 << 20
Packer = Callable[[bytes], bytes]
PACKERS: list[Packer] = [lambda data: gzip.compress(data, 1), bz2.compress, lzma.compress]
packers = st.sampled_from(PACKERS)
sizes = st.integers(0, 3 * CHUNK_BYTES)
cuts = st.integers(1, 2 * CHUNK_BYTES)


def filled(size: int, seed: int) -> bytes:
    """Bytes that pack neither perfectly nor badly."""
    line = f"[{seed:8d}.000000] usb {seed * 2654435761 % 97}-{seed}: reset high-speed USB device\n".encode()
    return (line * (size // len(line) + 1))[:size]


def in_pieces(data: bytes, size: int) -> Stream:
    """A stream that arrives in pieces of a size."""
    return Stream(data[start : start + size] for start in range(0, len(data), size))


def whole(stream: Stream) -> bytes:
    """All that a stream holds, which must be undamaged."""
    data = b"".join(stream)
    assert not stream.damage
    return data


@settings(deadline=None, max_examples=40)
@given(st.lists(packers, min_size=1, max_size=4), sizes, cuts)
def test_what_is_packed_several_times_comes_out_whole(layers: list[Packer], size: int, cut: int) -> None:
    packed = text = filled(size, 1)
    for pack in layers:
        packed = pack(packed)
    assert whole(unpacked(in_pieces(packed, cut), Budget())) == text


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(packers, sizes), min_size=1, max_size=4), cuts, st.floats(0, 1, exclude_max=True))
def test_members_of_any_size_cut_anywhere_come_out_whole_and_of_a_truncated_file_the_front(
    parts: list[tuple[Packer, int]], cut: int, share: float
) -> None:
    texts = [filled(size, seed) for seed, (_, size) in enumerate(parts)]
    members_ = [pack(text) for (pack, _), text in zip(parts, texts, strict=True)]
    packed = b"".join(members_)
    assert whole(unpacked(in_pieces(packed, cut), Budget())) == b"".join(texts)
    kept = int(share * len(packed))
    stream = unpacked(in_pieces(packed[:kept], cut), Budget())
    found = b"".join(stream)
    ends = {sum(map(len, members_[:count])) for count in range(len(members_) + 1)}
    if kept >= max(len(magic) for magic in (b"\x1f\x8b", b"BZh", b"\xfd7zXZ\0")):
        assert b"".join(texts).startswith(found)
        assert bool(stream.damage) == (kept not in ends)


@settings(deadline=None, max_examples=60)
@given(st.binary(max_size=3000), packers, st.integers(0, 3000), st.binary(max_size=40), cuts)
def test_damaged_bytes_end(noise: bytes, pack: Packer, at: int, patch: bytes, cut: int) -> None:
    packed = bytearray(pack(noise) + noise)
    packed[at : at + len(patch)] = patch
    for chunk in unpacked(in_pieces(bytes(packed), cut), Budget()):
        assert 0 < len(chunk) <= 2 * CHUNK_BYTES


def wrong_checksum() -> bytes:
    packed = bytearray(gzip.compress(b"text\n"))
    packed[-8] ^= 1
    return bytes(packed)


NOT_HERE = {
    b"\x28\xb5\x2f\xfd": "zstd -d",
    b"PK\x03\x04": "zip archive inside another file",
    b"LPKSHHRH": "journalctl -k --file",
    b"7z\xbc\xaf\x27\x1c": "7z",
}


@pytest.mark.parametrize(
    ("packed", "text", "damage"),
    [
        *((pack(b"text\n") + bytes(5000), b"text\n", "") for pack in PACKERS),
        *((pack(b"text\n") + b"PADDING" * 100, b"text\n", "what follows the packed data was not") for pack in PACKERS),
        *(
            (pack(start + bytes(100)), b"", words)
            for start, words in NOT_HERE.items()
            for pack in (bytes, gzip.compress)
        ),
        (reduce(lambda data, _: gzip.compress(data), range(5), b"text\n"), b"", "it is packed more than 4 times"),
        (lzma.compress(b"text", preset=9), b"", "xz -d"),  # needs much memory
        (wrong_checksum(), b"", "ends early"),
    ],
    ids=lambda value: "" if isinstance(value, bytes) else value,  # gzip's bytes have the time
)
def test_what_cannot_be_unpacked_is_named_with_what_to_do(packed: bytes, text: bytes, damage: str) -> None:
    stream = unpacked(in_pieces(packed, 1000), Budget())
    assert b"".join(stream) == text
    assert damage in stream.damage
    assert bool(damage) == bool(stream.damage)


@pytest.mark.slow
def test_an_archive_that_unpacks_for_ever_ends_at_the_bound() -> None:
    bomb = gzip.compress(gzip.compress(bytes(64 * MIB), 9), 9)
    stream = unpacked(in_pieces(bomb, 1000), Budget(16 * MIB))
    assert sum(map(len, stream)) <= 16 * MIB
    assert stream.damage.startswith("ends early: only the first")


@pytest.mark.slow
@pytest.mark.parametrize(
    "pack",
    [
        lambda: gzip.compress(bytes(64 * MIB), 9),
        lambda: bz2.compress(bytes(64 * MIB)),
        lambda: lzma.compress(bytes(64 * MIB), preset=1),
        lambda: gzip.compress(b"") * 20_000,
    ],
    ids=["gzip", "bzip2", "xz", "empty members"],
)
def test_memory_is_bounded_however_much_comes_out(pack: Callable[[], bytes]) -> None:
    stream = unpacked(opened(io.BytesIO(pack()).read), Budget())
    tracemalloc.start()
    try:
        for chunk in stream:
            assert len(chunk) <= CHUNK_BYTES
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert not stream.damage
    assert peak < 8 * MIB


def failing_after(data: bytes) -> Callable[[int], bytes]:
    """Reads of a file on a disk that breaks."""
    file = io.BytesIO(data)

    def read(size: int) -> bytes:
        if not (taken := file.read(size)):
            raise OSError(5, "Input/output error")
        return taken

    return read


@pytest.mark.parametrize("pack", [bytes, *PACKERS])
def test_a_disk_that_fails_is_named(pack: Packer) -> None:
    data = pack(filled(MIB, 1))
    stream = unpacked(opened(failing_after(data[: len(data) // 2])), Budget())
    assert filled(MIB, 1).startswith(b"".join(stream))
    assert stream.damage == "ends early: Input/output error"


def tar_of(files: list[tuple[str, bytes]], kind: int) -> bytes:
    """An archive in one of the formats that tar writes."""
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=kind) as archive:
        for name, data in files:
            folder = tarfile.TarInfo("folder")
            folder.type = tarfile.DIRTYPE
            archive.addfile(folder)
            link = tarfile.TarInfo("link")
            link.type, link.linkname = tarfile.SYMTYPE, "x"
            archive.addfile(link)
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return written.getvalue()


names = st.text(st.characters(codec="utf-8", exclude_characters="\0\n"), min_size=1, max_size=200)
formats = st.sampled_from([tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])


@pytest.mark.slow
@settings(deadline=None, max_examples=60)
@given(files=st.lists(st.tuples(names, st.integers(0, 3000)), max_size=5), kind=formats, cut=cuts, read=st.booleans())
def test_the_files_of_a_tar_archive_come_out(files: list[tuple[str, int]], kind: int, cut: int, *, read: bool) -> None:
    expected = [(name, filled(size, seed)) for seed, (name, size) in enumerate(files)]
    archive = in_pieces(tar_of(expected, kind), cut)
    found = [(member.name, b"".join(member.stream) if read else b"") for member in members(archive)]
    assert found == [(name, data if read else b"") for name, data in expected]


@settings(deadline=None, max_examples=60)
@given(st.integers(0, 20_000), st.binary(min_size=1, max_size=600), st.integers(0, 20_000))
def test_a_damaged_tar_archive_ends(at: int, patch: bytes, kept: int) -> None:
    data = bytearray(tar_of([(f"file-{each}" * 30, filled(900, each)) for each in range(6)], tarfile.PAX_FORMAT))
    data[at : at + len(patch)] = patch
    archive = in_pieces(bytes(data[:kept]), 700)
    with suppress(EOFError, ValueError):
        assert sum(len(b"".join(member.stream)) for member in members(archive)) <= len(data)


def test_a_sparse_file_does_not_lose_the_next_one() -> None:
    header = bytearray(tar_of([("sparse", b"x" * 512)], tarfile.GNU_FORMAT)[1024:1536])  # after folder and link
    header[156:157], header[482:483], header[148:156] = tarfile.GNUTYPE_SPARSE, b"\1", b" " * 8
    header[148:156] = b"%06o\0 " % sum(header)
    sparse = bytes(header) + bytes(512) + b"y" * 512
    after = tar_of([("after", b"z")], tarfile.GNU_FORMAT)
    found = [(member.name, b"".join(member.stream)) for member in members(in_pieces(sparse + after, 512))]
    assert found == [("sparse", b"y" * 512), ("after", b"z")]


def test_a_header_that_claims_a_long_name_takes_no_memory() -> None:
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, 2 << 30

    def endless() -> Iterator[bytes]:
        yield header.tobuf(tarfile.GNU_FORMAT)
        for _ in range(64 * MIB // CHUNK_BYTES):
            yield b"n" * CHUNK_BYTES

    tracemalloc.start()
    try:
        with pytest.raises(EOFError):
            list(members(Stream(endless())))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MIB


def test_text_is_no_tar_archive() -> None:
    data = filled(600, 1), bytes(600), b"", tar_of([("x", b"y")], tarfile.USTAR_FORMAT)
    assert [is_tar(each) for each in data] == [False, False, False, True]


def lines_of(stream: Stream) -> list[str]:
    """All lines, of which none has anything that the text of its piece has not."""
    found = []
    for piece in pieces(stream):
        assert all(line in piece.text for line in piece.lines)
        found += piece.lines
    return found


texts = st.lists(st.text(st.sampled_from("ab \u00e9\u6708\x1b[0m\0\x0e"), max_size=30), max_size=20)


@example(["[0m", "\x1b"], "utf-8", "\n", 1)
@settings(deadline=None, max_examples=80)
@given(texts, st.sampled_from(["utf-8", "utf-8-sig", "utf-16", "utf-32"]), st.sampled_from(["\n", "\r\n"]), cuts)
def test_lines_are_the_same_wherever_they_are_cut(rows: list[str], encoding: str, newline: str, cut: int) -> None:
    data = newline.join(rows).encode(encoding)
    assert lines_of(in_pieces(data, max(1, cut % 7))) == lines_of(in_pieces(data, 1 << 20))


def test_a_long_line_is_cut_and_nothing_of_it_lost() -> None:
    found = lines_of(in_pieces(b"x" * (3 * LONGEST_LINE + 5) + b"\nend", CHUNK_BYTES))
    assert "".join(found) == "x" * (3 * LONGEST_LINE + 5) + "end"
    assert max(map(len, found)) <= LONGEST_LINE + 2 * CHUNK_BYTES
