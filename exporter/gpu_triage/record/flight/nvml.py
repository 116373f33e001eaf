"""NVML library that records continuously: like `RecordingNvml`, at a tenth of the cost per call."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from typing import Any, Final

from gpu_triage.machine import NvmlLibrary
from gpu_triage.record.calls import GPM_ALLOC
from gpu_triage.record.flight.order import Spans
from gpu_triage.record.flight.ring import Answer, answer_of
from gpu_triage.record.library import RecordingNvml, private_spans

_GPM: Final = "nvmlGpm"
"""The arguments of these functions don't identify the GPU of a sample: `CallKeys` remembers it."""

_TIMESTAMP: Final = re.compile(r"\b[0-9]{13,}\b")
_MOST_CALLS: Final = 4096
_PLAIN: Final = frozenset({int, float, str, bytes, type(None)})


class FlightNvml(RecordingNvml):
    """Describes each distinct call once, and recognizes it later by its arguments.

    Args:
        base: the machine's own library.
        answered: called with the key and answer of each call.

    Attributes:
        private: position of identifying data in each output buffer, by call key.
    """

    def __init__(self, base: NvmlLibrary, answered: Callable[[str, Answer], None]) -> None:
        super().__init__(base, lambda *_: None)
        self.private: dict[str, tuple[Spans, ...]] = {}
        self._answered = answered
        self._known: dict[tuple[object, ...], str] = {}

    def _noting(self, name: str, function: Callable[..., Any]) -> Callable[..., int]:
        if name == GPM_ALLOC:
            return super()._noting(name, function)
        by_arguments = not name.startswith(_GPM)

        def call(*arguments: Any) -> int:
            try:
                key, outs, before = described(arguments)
            except Exception:  # noqa: BLE001 - a recorder bug must not prevent the driver call
                return int(function(*arguments))
            code = int(function(*arguments))
            self._answered(key, answer_of(code, before, map(bytes, outs)))
            return code

        def described(arguments: tuple[Any, ...]) -> tuple[str, list[Any], list[bytes]]:
            outs: list[Any] = []
            before: list[bytes] = []
            identity: list[object] = [name]
            for argument in arguments:
                if type(argument) in _PLAIN:
                    identity.append(argument)
                elif isinstance(argument, ctypes.c_char_p):
                    identity.append(argument.value)
                else:
                    # ctypes' byref() keeps the referenced object in _obj.
                    out = getattr(argument, "_obj", None)
                    if out is None and isinstance(argument, (ctypes.Array, ctypes.Structure)):
                        out = argument
                    raw = bytes(argument if out is None else out)
                    identity.append(hash(raw))
                    if out is not None:
                        outs.append(out)
                        before.append(raw)
            known = self._known.get(tuple(identity)) if by_arguments else None
            key = known or self._describe(name, arguments, tuple(identity) if by_arguments else None, outs)
            return key, outs, before[: len(outs)]

        return call

    def _describe(
        self, name: str, arguments: tuple[Any, ...], identity: tuple[object, ...] | None, outs: list[Any]
    ) -> str:
        key, described = self._keys.describe(name, arguments)
        if not described:
            # The call fills an opaque sample buffer, which isn't recorded.
            outs.clear()
        if _TIMESTAMP.search(key):
            # Calls that ask for events since a timestamp would otherwise each get their own key.
            key = _TIMESTAMP.sub("0", key)
        elif identity is not None:
            if len(self._known) >= _MOST_CALLS:
                self._known.clear()
            self._known[identity] = key
        if any(private := tuple(map(private_spans, described))):
            self.private[key] = private
        return key
