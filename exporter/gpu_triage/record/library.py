"""NVML library wrapper that forwards all calls to the host's library and records them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any, Final

from gpu_triage.driver.nvml.library_file import NAME, refuse_cut_short
from gpu_triage.machine import NvmlLibrary
from gpu_triage.record.calls import GPM_ALLOC, CallKeys, content

_PRIVATE_MEMBERS: Final = frozenset({"clusterUuid", "uuid", "serial", "ibGuid", "chassisSerialNumber"})


class RecordingNvml:
    """NvmlLibrary for a machine being recorded, and the library object it loads.

    Args:
        base: the machine's own library.
        note: called for each call with function, key, return code, output buffers, and their previous content.

    Attributes:
        missing: names of functions that the library lacks.
    """

    def __init__(self, base: NvmlLibrary, note: Callable[[str, str, int, tuple[Any, ...], list[bytes]], None]) -> None:
        self.missing: set[str] = set()
        self._base = base
        self._note = note
        self._keys = CallKeys()
        self._library: object | None = None

    def load(self) -> object | None:
        """See NvmlLibrary; None if there is no library, and then nothing is recorded."""
        if self._library is None:
            self._library = self._base.load()
        if self._library is None:
            refuse_cut_short()
            try:
                self._library = ctypes.CDLL(NAME)
            except OSError:
                return None
        return self

    def __getattr__(self, name: str) -> Any:
        """Look up a function.

        Raises:
            AttributeError: the library lacks it.
        """
        if name.startswith("_"):
            raise AttributeError(name)
        try:
            function = getattr(self._library, name)
        except AttributeError:
            self.missing.add(name)
            raise
        return function if name == "nvmlErrorString" else self._noting(name, function)

    def _noting(self, name: str, function: Callable[..., Any]) -> Callable[..., int]:
        """Wrap a function so that its calls are recorded."""

        def call(*arguments: Any) -> int:
            key, outs = self._keys.describe(name, arguments)
            before = [content(out) for out in outs]
            code = int(function(*arguments))
            if name != GPM_ALLOC:
                self._note(name, key, code, outs, before)
            return code

        return call


def private_spans(out: Any) -> tuple[tuple[int, int], ...]:
    """Offset and end of the binary members of a ctypes object that identify a board or host."""
    if not isinstance(out, ctypes.Structure):
        return ()
    members = [getattr(type(out), name) for name, *_ in out._fields_ if name in _PRIVATE_MEMBERS]
    return tuple((member.offset, member.offset + member.size) for member in members)
