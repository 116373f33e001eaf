"""The last minutes of a host's answers in memory, compressed as they come.

The ring consists of blocks. Each starts with the full state at its beginning, so that the oldest can be dropped without
decoding it. Within a block, an answer is stored as an XOR with the previous one, which is mostly zeros.
"""

import gzip
import io
import marshal
import threading
import zlib
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from gpu_triage.record.recording import TimedAnswer

BLOCK_SECONDS: Final = 120.0
KEPT_SECONDS: Final = 600.0
MOST_BLOCK_BYTES: Final = 512 << 10
MOST_BYTES: Final = 3 << 20
"""Limit for all blocks together. A host with more data than fits is covered for a shorter time."""

_EVENT: Final = '["nvmlEventSetWait'
"""Start of the keys of calls that return each event only once."""
_MOST_KEYS: Final = 20_000
_MOST_LEFT: Final = 20_000
_MOST_OF_RING: Final = 12
"""An answer larger than this part of a ring is skipped. Of what is read every few seconds, only mount tables get near
that size."""
_LEVEL: Final = 6
_GZIP_BITS: Final = zlib.MAX_WBITS | 16
_MEMORY_LEVEL: Final = 6  # 160 KiB for the compressor instead of 256

_Out = tuple[bool, bytes] | None
"""One output: whether it is an XOR with the one before it, and its bytes; None if unchanged."""


class Answer(NamedTuple):
    """The answer to a call of NVML, or to a question about a file."""

    code: int
    outs: tuple[bytes | None, ...]  # content of each output, without trailing zeros; None if unchanged
    sizes: tuple[int, ...]  # of the outputs, with them


class RingBlock(NamedTuple):
    """One time span of a ring: its start in monotonic seconds, and its compressed content."""

    began: float
    content: bytes


class _Writer:
    """A block under construction."""

    def __init__(self, began: float) -> None:
        self.began = began
        self.size = 0
        self._pieces: list[bytes] = []
        self._compressor = zlib.compressobj(_LEVEL, zlib.DEFLATED, _GZIP_BITS, _MEMORY_LEVEL)
        self._numbers: dict[str, int] = {}
        self._before: dict[tuple[int, int], bytes] = {}

    def add(self, now: float, key: str, answer: Answer) -> None:
        # A key is written where it occurs first, and its number from then on.
        name: str | int = self._numbers.get(key, key)
        number = self._numbers.setdefault(key, len(self._numbers))
        outs = tuple(self._encoded((number, place), out) for place, out in enumerate(answer.outs))
        piece = self._compressor.compress(marshal.dumps((name, now - self.began, answer.code, outs, answer.sizes)))
        if piece:
            self._pieces.append(piece)
            self.size += len(piece)

    def _encoded(self, place: tuple[int, int], out: bytes | None) -> _Out:
        """An output, as an XOR with the one before it if they have the same length."""
        if out is None:
            return None
        before = self._before.get(place)
        self._before[place] = out
        return (True, _xor(before, out)) if before is not None and len(before) == len(out) else (False, out)

    def close(self) -> RingBlock:
        """The block in its present state; writing may continue afterwards."""
        return RingBlock(self.began, b"".join((*self._pieces, self._compressor.copy().flush())))


class Ring:
    """Keeps the answers of the last minutes. Thread-safe.

    The threads that read a host only enqueue, so that they don't contend for the blocks; `drain` writes the queue to
    the blocks. `now` is the monotonic clock. What exceeds `kept_seconds` or `most_bytes` is dropped, oldest first.
    """

    def __init__(
        self, now: Callable[[], float], kept_seconds: float = KEPT_SECONDS, most_bytes: int = MOST_BYTES
    ) -> None:
        self.size = 0  # bytes of all finished blocks
        self._now = now
        self._kept_seconds = kept_seconds
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._left: deque[tuple[float, str, Answer, bool]] = deque()
        self._latest: dict[str, Answer] = {}
        self._passing: dict[str, Answer] = {}  # the latest of what is passing, since the present block began
        self._state: dict[str, Answer] = {}
        self._blocks: deque[RingBlock] = deque()
        self._writer: _Writer | None = None

    def note(self, key: str, answer: Answer, *, passing: bool = False) -> None:
        """Enqueue an answer; unchanged ones are skipped, except events. Never blocks.

        What is `passing`, such as a process, is forgotten in the next block, unless it is noted again.
        """
        latest = self._passing if passing else self._latest
        before = latest.get(key)
        if before == answer and not (answer.code == 0 and key.startswith(_EVENT)):
            return
        fits = sum(len(out) for out in answer.outs if out is not None) <= self._most_bytes // _MOST_OF_RING
        if fits and len(self._left) < _MOST_LEFT and (before is not None or len(latest) < _MOST_KEYS):
            latest[key] = answer
            self._left.append((self._now(), key, answer, passing))

    def drain(self) -> None:
        """Write enqueued answers to the blocks."""
        with self._lock:
            while self._left:
                now, key, answer, passing = self._left.popleft()
                self._writing(now).add(now, key, answer)
                # Events are one-time, not a state to repeat at the start of the next block.
                if not passing and (answer.code or not key.startswith(_EVENT)):
                    self._state[key] = answer

    def content(self) -> tuple[RingBlock, ...]:
        """The blocks, oldest first."""
        self.drain()
        with self._lock:
            return tuple(self._blocks) if self._writer is None else (*self._blocks, self._writer.close())

    def _writing(self, now: float) -> _Writer:
        writer = self._writer
        if writer is not None and now - writer.began < BLOCK_SECONDS and writer.size < MOST_BLOCK_BYTES:
            return writer
        if writer is not None:
            block = writer.close()
            self._blocks.append(block)
            self.size += len(block.content)
            # A block covers the time up to the start of the next one.
            blocks, oldest = self._blocks, now - self._kept_seconds
            while blocks and (self.size > self._most_bytes or (len(blocks) > 1 and blocks[1].began <= oldest)):
                self.size -= len(blocks.popleft().content)
        self._passing = {}
        writer = self._writer = _Writer(now)
        for key, answer in self._state.items():
            writer.add(now, key, answer)
        return writer


def unrolled(blocks: Iterable[RingBlock]) -> Iterator[TimedAnswer]:
    """Decode a ring's blocks: each answer that changed, in chronological order."""
    began: float | None = None
    latest: dict[str, TimedAnswer] = {}
    for block in blocks:
        began = block.began if began is None else began
        for answer in _decoded(block, block.began - began):
            before = latest.get(answer.key)
            event = answer.code == 0 and answer.key.startswith(_EVENT)
            if event or before is None or before[2:] != answer[2:]:
                latest[answer.key] = answer
                yield answer


def _decoded(block: RingBlock, offset: float) -> Iterator[TimedAnswer]:
    keys: list[str] = []
    before: dict[tuple[int, int], bytes] = {}
    with gzip.GzipFile(fileobj=io.BytesIO(block.content)) as file:
        while file.peek(1):
            # Written by this program, in this process or in its parent.
            name, seconds, code, outs, sizes = marshal.load(file)  # noqa: S302
            if isinstance(name, str):
                keys.append(name)
            number = len(keys) - 1 if isinstance(name, str) else name
            restored = tuple(_restored(before, (number, place), out) for place, out in enumerate(outs))
            padded = tuple(
                None if out is None else out.ljust(size, b"\0") for out, size in zip(restored, sizes, strict=True)
            )
            yield TimedAnswer(max(0.0, offset + seconds), keys[number], code, padded)


def _restored(before: dict[tuple[int, int], bytes], place: tuple[int, int], out: _Out) -> bytes | None:
    if out is None:
        return None
    is_xor, raw = out
    before[place] = _xor(before[place], raw) if is_xor else raw
    return before[place]


def _xor(one: bytes, other: bytes) -> bytes:
    return (int.from_bytes(one, "little") ^ int.from_bytes(other, "little")).to_bytes(len(other), "little")
