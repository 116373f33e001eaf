"""Query the driver versions in a child process: ``python -m`` this file.

NVML initialization takes seconds on some hosts and hangs on others; a command that only prints versions must not wait
longer than a short timeout.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import asdict
from typing import Final

from gpu_triage.driver.child import ChildNotStarted, ChildProcess
from gpu_triage.driver.crash import ending
from gpu_triage.driver.nvml.session import Session
from gpu_triage.errors import DriverUnavailable
from gpu_triage.machine import SystemNvml

DEADLINE_SECONDS: Final = 5.0


def versions_in_words(deadline_seconds: float = DEADLINE_SECONDS) -> str:
    """``driver 580.95.05, NVML 13.580.95.05, CUDA 13.0``, or why it is unknown; returns within the deadline."""
    try:
        written, code = ChildProcess(__spec__.name).run(deadline_seconds)
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
    """Query the versions, write them to stdout, and exit without shutting NVML down, which may hang too."""
    session = Session(SystemNvml())
    try:
        session.open()
        session.read_versions()
        answer: dict[str, str | None] = asdict(session.versions)
    except DriverUnavailable as unavailable:
        answer = {"error": unavailable.reason}
    sys.stdout.write(json.dumps(answer))
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
