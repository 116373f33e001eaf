"""How the C library hands out memory to this process.

glibc gives threads arenas of their own, up to eight for each core, and each keeps what it has once taken. The exporter
has a thread for every GPU, and all of them make small objects once a second, so that memory grows for hours though
Python's heap does not. Source: mallopt(3).
"""

from __future__ import annotations

import ctypes
from typing import Final

_M_ARENA_MAX: Final = -8
_M_MMAP_THRESHOLD: Final = -3
_MMAP_FROM_BYTES: Final = 128 << 10
"""glibc's default, which it raises by itself whenever a larger block is freed, unless it is set: pages of metrics, made
anew every second, would then break up the heap."""


def keep_memory_flat() -> bool:
    """Use one arena, and map large blocks by themselves; call it before the first thread. Whether it could be done."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        # musl has one arena, and nothing to set.
        return False
    return bool(mallopt(_M_ARENA_MAX, 1)) and bool(mallopt(_M_MMAP_THRESHOLD, _MMAP_FROM_BYTES))
