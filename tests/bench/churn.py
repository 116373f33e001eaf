"""A host on which processes come and go and GPUs fail, for a daemon over the compiled driver."""

from __future__ import annotations

import subprocess
import time
from collections import deque
from collections.abc import Iterator

from tests.faults.stand_in import StandIn

NEW_PER_SECOND = 24
LIFE_SECONDS = 5
FAULT_SECONDS = 10
"""How long a fault lasts, and how long there is none after it."""
GPUS = 16
XIDS_PER_SECOND = 20
XID_SECONDS = 60
"""How often a storm of Xids begins; it lasts as long as a fault."""
_XID_CODES = 200
_XIDS_KEPT_SECONDS = 3
FAULTS = (
    "gpu 1 hang nvmlDeviceGetPowerUsage",
    "gpu 2 lost",
    "gpu 3 error nvmlDeviceGetUtilizationRates 999",
    "gpu 4 value nvmlDeviceGetTotalEnergyConsumption 18446744073709551614",
    "gpu 5 slow nvmlDeviceGetTemperature 0.7",
    "gpu 6 removed",
    "gpu 8 value nvmlDeviceGetMigMode 1 1",
    "host error nvmlDeviceGetCount 999",
    "gpu 7 value nvmlDeviceGetPowerUsage 4294967294",
    "gpu 9 error nvmlDeviceGetFieldValues 999",
    "gpu * error nvmlDeviceGetMemoryInfo 999",
    "gpu 10 reset",
)


def churn(host: StandIn, seconds: float, *, faults: bool) -> Iterator[float]:
    """Start and end processes on the host's GPUs; yields the seconds so far, once a second.

    Args:
        host: its GPUs get ``NEW_PER_SECOND`` processes together, each for ``LIFE_SECONDS``.
        faults: whether one of FAULTS after the other comes and goes, and Xids come in storms.
    """
    alive: deque[list[subprocess.Popen[bytes]]] = deque()
    began = time.monotonic()
    try:
        for second in range(round(seconds)):
            alive.append([subprocess.Popen(["sleep", "60"]) for _ in range(NEW_PER_SECOND)])
            if len(alive) > LIFE_SECONDS:
                _end(alive.popleft())
            pids = [process.pid for born in alive for process in born]
            lines = [f"gpu {gpu} pids {' '.join(map(str, pids[gpu :: host.gpus]))}" for gpu in range(host.gpus)]
            turn, since = divmod(second, 2 * FAULT_SECONDS)
            if faults and since < FAULT_SECONDS:
                lines.append(FAULTS[turn % len(FAULTS)])
            if faults:
                lines += _xids(second, host.gpus)
            host.replace(*lines)
            time.sleep(max(0.0, began + second + 1 - time.monotonic()))
            yield time.monotonic() - began
    finally:
        for born in alive:
            _end(born)


def _xids(second: int, gpus: int) -> Iterator[str]:
    """The events of the last seconds: each is heard once, by its number."""
    for past in range(max(0, second - _XIDS_KEPT_SECONDS), second + 1):
        if past % XID_SECONDS < FAULT_SECONDS:
            for number in range(past * XIDS_PER_SECOND + 1, (past + 1) * XIDS_PER_SECOND + 1):
                yield f"gpu {number % gpus} xid {number} {number % _XID_CODES + 1}"


def _end(processes: list[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        process.kill()
    for process in processes:
        process.wait()
