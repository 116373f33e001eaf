"""In-memory ring buffer of the last minutes of a host: NVML responses and kernel file contents, compressed on the fly.

The ring consists of blocks. Each block starts with the full state at its beginning, so that the oldest can be dropped
without decoding it. Within a block, a response is stored as an XOR with the previous one, which is mostly zeros.
"""

from __future__ import annotations

import struct
import threading
import zlib
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, cast

from gpu_triage.record.calls import EVENTS, function_of
from gpu_triage.record.library import Answer
from gpu_triage.record.recording import FileState, Kind, NvmlAnswer

BLOCK_SECONDS: Final = 120.0
KEPT_SECONDS: Final = 600.0
MOST_BLOCK_BYTES: Final = 512 << 10
MOST_BYTES: Final = 3 << 20
"""Limit for all blocks together. A host with more data than fits is covered for a shorter time."""

_EVENT: Final = '["nvmlEventSetWait'
_MOST_KEYS: Final = 20_000
_MOST_LEFT: Final = 20_000
_MOST_FILES: Final = 20_000
_MOST_TEXT_BYTES: Final = 256 << 10
"""A longer file is skipped: of the files that are read every few seconds, only mount tables get near this size."""
_LEVEL: Final = 6
_WINDOW_BITS: Final = 15
_MEMORY_LEVEL: Final = 6  # 160 KiB for the compressor instead of 256
_READ_BYTES: Final = 1 << 16

_ANSWER, _FILE = range(2)
_HEAD: Final = struct.Struct("<BfI")  # kind, seconds since the block began, bytes that follow
_CALL: Final = struct.Struct("<IiB")  # key, return code, number of output buffers
_OUT: Final = struct.Struct("<BII")  # encoding, size of the buffer, bytes that follow
_SAME, _RAW, _XOR = range(3)


@dataclass(frozen=True, slots=True)
class RingBlock:
    """One time span of the ring.

    Attributes:
        began: start, in monotonic seconds.
        content: compressed.
    """

    began: float
    content: bytes


@dataclass(frozen=True, slots=True)
class RingContent:
    """An immutable snapshot of a ring's content; a few hundred kilobytes.

    Attributes:
        keys: call keys, by number.
        blocks: oldest first.
    """

    keys: tuple[str, ...]
    blocks: tuple[RingBlock, ...]


class _Writer:
    """A block under construction."""

    def __init__(self, began: float) -> None:
        self.began = began
        self.size = 0
        self._pieces: list[bytes] = []
        self._compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, _WINDOW_BITS, _MEMORY_LEVEL)
        self._before: dict[tuple[int, int], bytes] = {}

    def answer(self, now: float, key: int, answer: Answer) -> None:
        parts = [_CALL.pack(key, answer.code, len(answer.outs))]
        for place, (short, size) in enumerate(zip(answer.outs, answer.sizes, strict=True)):
            if short is None:
                parts.append(_OUT.pack(_SAME, size, 0))
                continue
            before = self._before.get((key, place))
            self._before[key, place] = short
            if before is not None and len(before) == len(short):
                parts.append(_OUT.pack(_XOR, size, len(short)) + _xor(before, short))
            else:
                parts.append(_OUT.pack(_RAW, size, len(short)) + short)
        self._add(now, _ANSWER, b"".join(parts))

    def file(self, now: float, state: FileState) -> None:
        text = f"{state.path}\0{state.kind}\0{state.text}"
        self._add(now, _FILE, text.encode("utf-8", "surrogateescape"))

    def close(self) -> RingBlock:
        """The block in its present state; writing may continue afterwards."""
        return RingBlock(self.began, b"".join((*self._pieces, self._compressor.copy().flush())))

    def _add(self, now: float, kind: int, body: bytes) -> None:
        piece = self._compressor.compress(_HEAD.pack(kind, now - self.began, len(body)) + body)
        if piece:
            self._pieces.append(piece)
            self.size += len(piece)


class Ring:
    """Keeps the data of the last ten to twelve minutes. Thread-safe.

    The threads that query GPUs only enqueue their responses, so that eight of them don't contend for the block lock;
    `drain` writes the queue to the blocks.

    Attributes:
        size: bytes of all finished blocks.
    """

    def __init__(self) -> None:
        self.size = 0
        self._lock = threading.Lock()
        self._left: deque[tuple[float, str, Answer]] = deque()
        self._latest: dict[str, Answer] = {}
        self._blocks: deque[RingBlock] = deque()
        self._writer: _Writer | None = None
        self._numbers: dict[str, int] = {}
        self._events: set[int] = set()  # numbers of calls that return each event only once
        self._last: dict[int, Answer] = {}
        self._files: dict[str, FileState] = {}

    def answer(self, now: float, key: str, answer: Answer) -> None:
        """Enqueue an NVML response; unchanged ones are skipped, except events. Never blocks."""
        before = self._latest.get(key)
        if before == answer and not (answer.code == 0 and key.startswith(_EVENT)):
            return
        if len(self._left) < _MOST_LEFT and (before is not None or len(self._latest) < _MOST_KEYS):
            self._latest[key] = answer
            self._left.append((now, key, answer))

    def drain(self) -> None:
        """Write queued responses to the blocks."""
        with self._lock:
            while self._left:
                self._write(*self._left.popleft())

    def file(self, now: float, state: FileState) -> None:
        """Record the present state of a file."""
        if len(state.text) > _MOST_TEXT_BYTES:
            return
        with self._lock:
            if state.kind == "gone":
                self._files.pop(state.path, None)
            elif state.path in self._files or len(self._files) < _MOST_FILES:
                self._files[state.path] = state
            else:
                return
            self._writing(now).file(now, state)

    def _write(self, now: float, key: str, answer: Answer) -> None:
        number = self._numbers.get(key)
        if number is None:
            number = self._numbers[key] = len(self._numbers)
            if function_of(key) in EVENTS:
                self._events.add(number)
        self._writing(now).answer(now, number, answer)
        if answer.code or number not in self._events:
            # Events are one-time, not a state to repeat at the start of the next block.
            self._last[number] = answer

    def forget(self, paths: Iterable[str]) -> None:
        """Drop files that are no longer read: later blocks don't start with their state."""
        with self._lock:
            for path in paths:
                self._files.pop(path, None)

    def content(self) -> RingContent:
        """A snapshot of everything kept."""
        self.drain()
        with self._lock:
            blocks = tuple(self._blocks) if self._writer is None else (*self._blocks, self._writer.close())
            return RingContent(tuple(self._numbers), blocks)

    def _writing(self, now: float) -> _Writer:
        writer = self._writer
        if writer is not None and now - writer.began < BLOCK_SECONDS and writer.size < MOST_BLOCK_BYTES:
            return writer
        if writer is not None:
            block = writer.close()
            self._blocks.append(block)
            self.size += len(block.content)
            # A block covers the time up to the start of the next one.
            while self._blocks and (self.size > MOST_BYTES or self._ended_before(now - KEPT_SECONDS)):
                self.size -= len(self._blocks.popleft().content)
        writer = self._writer = _Writer(now)
        for number, answer in self._last.items():
            writer.answer(now, number, answer)
        for state in self._files.values():
            writer.file(now, state)
        return writer

    def _ended_before(self, moment: float) -> bool:
        return len(self._blocks) > 1 and self._blocks[1].began <= moment


def unrolled(content: RingContent) -> Iterator[NvmlAnswer | FileState]:
    """Decode a ring's content: each response and file state when it changed; times are seconds since the first block.

    Responses are in chronological order. The first state of each file applies from the beginning.
    """
    began = content.blocks[0].began if content.blocks else 0.0
    answers: dict[int, NvmlAnswer] = {}
    files: dict[str, FileState] = {}
    events = {number for number, key in enumerate(content.keys) if function_of(key) in EVENTS}
    for block in content.blocks:
        before: dict[tuple[int, int], bytes] = {}
        for kind, seconds, body in _entries(block.content):
            at = max(0.0, block.began - began + seconds)
            if kind == _FILE:
                path, what, text = body.decode("utf-8", "surrogateescape").split("\0", 2)
                known = files.get(path)
                # Assume that the first known state applied from the beginning.
                state = FileState(0.0 if known is None else at, path, cast("Kind", what), text)
                if known is None or known[2:] != state[2:]:
                    files[path] = state
                    yield state
                continue
            number, answer = _read_answer(body, at, content.keys, before)
            last = answers.get(number)
            event = answer.code == 0 and number in events
            if event or last is None or last[2:] != answer[2:]:
                answers[number] = answer
                yield answer


def _read_answer(
    body: bytes, at: float, keys: tuple[str, ...], before: dict[tuple[int, int], bytes]
) -> tuple[int, NvmlAnswer]:
    number, code, count = _CALL.unpack_from(body)
    offset = _CALL.size
    outs: list[bytes | None] = []
    for place in range(count):
        how, size, length = _OUT.unpack_from(body, offset)
        offset += _OUT.size
        short = body[offset : offset + length]
        offset += length
        if how == _SAME:
            outs.append(None)
            continue
        if how == _XOR:
            short = _xor(before[number, place], short)
        before[number, place] = short
        outs.append(short.ljust(size, b"\0"))
    return number, NvmlAnswer(at, keys[number], code, tuple(outs))


def _entries(content: bytes) -> Iterator[tuple[int, float, bytes]]:
    decompressor = zlib.decompressobj()
    pending, rest = b"", content
    while rest or pending:
        piece = decompressor.decompress(rest, _READ_BYTES)
        rest = decompressor.unconsumed_tail
        pending += piece
        while len(pending) >= _HEAD.size:
            kind, seconds, length = _HEAD.unpack_from(pending)
            end = _HEAD.size + length
            if len(pending) < end:
                break
            yield kind, seconds, pending[_HEAD.size : end]
            pending = pending[end:]
        if not piece and not rest:
            return


def _xor(one: bytes, other: bytes) -> bytes:
    return (int.from_bytes(one, "little") ^ int.from_bytes(other, "little")).to_bytes(len(other), "little")
