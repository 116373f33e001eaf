"""Process settings of a daemon: the C library's memory allocator, and the Python interpreter.

glibc gives threads their own arenas, up to eight per core, and each keeps the memory it once took. The exporter has a
thread per GPU, and all of them allocate small objects once a second, so memory grows for hours although Python's heap
doesn't. Source: mallopt(3).
"""

import ctypes
import gc
import sys
from typing import Final

_M_ARENA_MAX: Final = -8
_M_MMAP_THRESHOLD: Final = -3
_MMAP_FROM_BYTES: Final = 128 << 10
"""glibc's default. Unless it is set explicitly, glibc raises it whenever a larger block is freed; then pages of
metrics, rebuilt every second, would fragment the heap."""
_SWITCH_SECONDS: Final = 0.0001
"""Time slice of a thread while others wait. With Python's default of 5 ms, a scrape in the middle of a round would take
that long; the cost of switching this often isn't measurable."""


def keep_memory_flat() -> bool:
    """Use one arena, and mmap for large blocks; call before starting threads. Returns whether it succeeded."""
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (OSError, AttributeError):
        # musl has a single arena and no such settings.
        return False
    return bool(mallopt(_M_ARENA_MAX, 1)) and bool(mallopt(_M_MMAP_THRESHOLD, _MMAP_FROM_BYTES))


def answer_promptly() -> None:
    """Let scrapes interrupt sampling, and exclude the program's own objects from garbage collection.

    Call it when everything is imported: the 200,000 or so objects that exist by then are permanent, and scanning them
    takes tens of milliseconds without any response.
    """
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.collect()
    gc.freeze()
