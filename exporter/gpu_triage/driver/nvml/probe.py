"""Ask NVML in a child process, which may hang without blocking its parent: ``python -m`` this file.

An NVML session only has the GPUs present when it was opened: GPUs that were lost or added since need a new session.
Closing a working session just to check would blind the exporter while NVML initializes, which may never finish while a
GPU is dying. And a command that prints the driver's version must not wait for that at all.
"""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import Final

from gpu_triage.driver.child import ChildNotStarted, ChildProcess
from gpu_triage.driver.crash import ending, explained
from gpu_triage.driver.nvml.inquiry import Inquiry
from gpu_triage.driver.nvml.session import CurrentCall, Device, Session, identify
from gpu_triage.errors import DriverUnavailable, GpuUnavailable, ProbeFailed
from gpu_triage.machine import ProbeReport, SystemNvml

_PROBE_SECONDS: Final = 60.0
"""NVML initialization takes seconds on a host without persistence mode, longer with a failing GPU."""
_GPU_SECONDS: Final = 10.0  # how long the child waits for GPUs that do not answer
_VERSIONS_SECONDS: Final = 5.0
_VERSIONS: Final = "versions"
"""Argument with which the child reads the versions instead."""
_GPU_SENSOR: Final = 0
_QUESTIONS: Final = (
    ("nvmlDeviceGetMemoryInfo",),
    ("nvmlDeviceGetTemperature", _GPU_SENSOR),
    ("nvmlDeviceGetPerformanceState",),
)


class ProbeProcess:
    """Probes with a child process. Only one thread at a time may call it."""

    def __init__(self) -> None:
        self._child = ChildProcess(__spec__.name)

    def look(self) -> ProbeReport:
        """Return the GPUs that answer a new session, within a minute; raises ProbeFailed."""
        if self._child.hangs:
            raise ProbeFailed("the process of an earlier look cannot be ended: it hangs in the driver")
        began = time.monotonic()
        try:
            written, code = self._child.run(_PROBE_SECONDS)
        except ChildNotStarted as error:
            raise ProbeFailed(f"no process to look with can be started: {error}") from error
        except subprocess.TimeoutExpired as error:
            raise ProbeFailed(f"NVML does not answer a new process within {_PROBE_SECONDS:.0f} s") from error
        count, answering = _parsed(written, code)
        return ProbeReport(count, answering, time.monotonic() - began)


def _parsed(written: bytes, code: int) -> tuple[int, dict[str, int]]:
    try:
        answer = json.loads(written)
        if "error" in answer:
            raise ProbeFailed(f"NVML does not work for a new process: {answer['error']}")
        return int(answer["count"]), {str(uuid): int(index) for uuid, index in answer["answering"].items()}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ProbeFailed(f"the process that looks {ending(code)} and told nothing") from error


def versions_in_words(deadline_seconds: float = _VERSIONS_SECONDS) -> str:
    """``driver 580.95.05, NVML 13.580.95.05, CUDA 13.0``, or why it is unknown; returns within the deadline."""
    try:
        written, code = ChildProcess(__spec__.name, _VERSIONS).run(deadline_seconds)
    except ChildNotStarted as error:
        return f"driver not asked: {error}"
    except subprocess.TimeoutExpired:
        return f"the driver does not answer within {deadline_seconds:g} s"
    try:
        answer = json.loads(written)
    except ValueError:
        return f"driver not known: the process that asked it {ending(code)}"
    if "error" in answer:
        return f"no driver: {answer['error']}"
    named = (("driver", answer["driver"]), ("NVML", answer["nvml"]), ("CUDA", answer["cuda"]))
    return ", ".join(f"{name} {version}" for name, version in named if version) or "driver version unknown"


def main() -> None:
    """Write the answer to stdout, and exit without waiting for calls that hang; shutting NVML down may hang too."""
    # If the parent dies, nothing else would end this process.
    signal.alarm(round(_PROBE_SECONDS))
    try:
        answer = _versions() if sys.argv[1:] == [_VERSIONS] else _look()
    except DriverUnavailable as unavailable:
        answer = {"error": unavailable.reason}
    sys.stdout.write(json.dumps(answer))
    sys.stdout.flush()
    os._exit(0)


def _versions() -> dict[str, object]:
    session = Session(SystemNvml())
    session.open()
    session.read_versions()
    return asdict(session.versions)


def _look() -> dict[str, object]:
    """Count the GPUs, and list those that can be identified and answer; each is queried in its own thread."""
    session = Session(SystemNvml())
    session.open()
    count = session.count()
    found: dict[str, int] = {}
    threads = [
        threading.Thread(target=explained, args=(partial(_ask, index, found),), daemon=True) for index in range(count)
    ]
    for thread in threads:
        thread.start()
    ends_at = time.monotonic() + _GPU_SECONDS
    for thread in threads:
        thread.join(max(0.0, ends_at - time.monotonic()))
    if not any(thread.is_alive() for thread in threads):
        # The probe also verifies that NVML can be shut down.
        session.close()
    return {"count": count, "answering": dict(found)}


def _ask(index: int, found: dict[str, int]) -> None:
    """Add a GPU that answers to those found, by UUID."""
    with suppress(DriverUnavailable, GpuUnavailable):
        gpu = identify(index, CurrentCall())
        if isinstance(gpu, Device):
            inquiry = Inquiry(gpu)
            for function, *arguments in _QUESTIONS:
                inquiry.ask(function, *arguments)
            if inquiry.answered:
                found[gpu.uuid] = index


if __name__ == "__main__":
    main()
