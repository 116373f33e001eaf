"""What a process writes before a signal kills it: NVML runs inside this process, and its crash ends the exporter.

If a library is truncated while it is in use, the kernel sends SIGBUS, and no Python code can run any more to say why.
Python's `faulthandler` still writes where each thread was: names of files and functions, and line numbers. It writes
nothing else: no argument, no secret, but also no line of this program's own log. So the explanation of the signal is
passed to it as the name of a file.
"""

from __future__ import annotations

import faulthandler
import io
import signal
from collections.abc import Callable
from contextlib import suppress
from types import MappingProxyType
from typing import Final

MEANINGS: Final = MappingProxyType(
    {
        signal.SIGBUS: "a file that the process had mapped was truncated or overwritten in place, most often "
        "libnvidia-ml.so.1 while the driver was upgraded",
        signal.SIGSEGV: "a crash in native code, most often in libnvidia-ml.so.1",
        signal.SIGABRT: "native code called abort(), most often libnvidia-ml.so.1 or the C library's heap check",
    }
)
"""What each signal means here; the supervisor restarts the exporter after all of them."""

_TITLES: Final = MappingProxyType(
    {signal.SIGBUS: "Bus error", signal.SIGSEGV: "Segmentation fault", signal.SIGABRT: "Aborted"}
)
"""What `faulthandler` calls them."""

EXPLANATION: Final = (
    "; ".join(f"{title}: {MEANINGS[number]}" for number, title in _TITLES.items())
    + '. "Current thread" shows the call. See docs/operations.md, Crashes'
)
"""`faulthandler` cuts names after 500 characters."""


def report_crashes() -> None:
    """Have a signal that kills this process write to stderr where each thread was, in plain text.

    Without a stderr there is nowhere to write to, and the process dies in silence.
    """
    with suppress(RuntimeError, ValueError, io.UnsupportedOperation):
        faulthandler.enable()


def explained(run: Callable[[], None]) -> None:
    """Call `run`; a crash report of this thread ends with what the signals mean."""
    run()


explained.__code__ = explained.__code__.replace(co_filename=EXPLANATION)


def ending(code: int) -> str:
    """How a process ended, by its exit code as `subprocess` gives it: ``ended with code 3``, ``was killed by …``."""
    if code >= 0:
        return f"ended with code {code}"
    try:
        number = signal.Signals(-code)
    except ValueError:
        return f"was killed by signal {-code}"
    meaning = MEANINGS.get(number)
    return f"was killed by {number.name}" + (f" ({meaning})" if meaning else "")
