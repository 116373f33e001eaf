"""Crash reports: NVML runs inside this process, so a crash in it kills the exporter.

If a library is truncated while in use, the kernel sends SIGBUS, and no more Python code can run to report the reason.
Python's `faulthandler` still prints the stack of the thread that crashed: file names, function names and line numbers.
It prints no arguments or secrets, but also no custom text, so the explanation of the signal is passed as a file name.
The other threads are left out: they still run, and to walk a stack that changes can crash the report itself.
"""

import faulthandler
import io
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import Final

MEANINGS: Final = {
    signal.SIGBUS: "a file that the process had mapped was truncated or overwritten in place, most often "
    "libnvidia-ml.so.1 while the driver was upgraded",
    signal.SIGSEGV: "a crash in native code, most often in libnvidia-ml.so.1",
    signal.SIGABRT: "native code called abort(), most often libnvidia-ml.so.1 or the C library's heap check",
}
"""The meaning of each signal for the exporter; the supervisor restarts it after any of them."""

_TITLES: Final = {signal.SIGBUS: "Bus error", signal.SIGSEGV: "Segmentation fault", signal.SIGABRT: "Aborted"}
"""The signals' names in `faulthandler`."""

EXPLANATION: Final = (
    "; ".join(f"{title}: {MEANINGS[number]}" for number, title in _TITLES.items())
    + ". The first line of the stack shows the call. See docs/troubleshooting.md, Crashes"
)
"""`faulthandler` truncates names after 500 characters."""


def report_crashes() -> None:
    """Print the stack of the thread that crashed to stderr when a signal kills this process."""
    with suppress(RuntimeError, ValueError, io.UnsupportedOperation):
        faulthandler.enable(all_threads=False)


def explained(run: Callable[[], None]) -> None:
    """Call `run`; a crash report of this thread ends with the explanation of the signals."""
    run()


explained.__code__ = explained.__code__.replace(co_filename=EXPLANATION)


def ending(code: int) -> str:
    """How a process ended, from its `subprocess` return code: ``ended with code 3``, ``was killed by …``."""
    if code >= 0:
        return f"ended with code {code}"
    try:
        number = signal.Signals(-code)
    except ValueError:
        return f"was killed by signal {-code}"
    meaning = MEANINGS.get(number)
    return f"was killed by {number.name}" + (f" ({meaning})" if meaning else "")
