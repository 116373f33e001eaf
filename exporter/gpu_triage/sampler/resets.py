"""When each GPU was last reset: what it reported before that no longer applies.

Only these signs count as a reset:

- the boot of the host (where the monotonic clock starts);
- a kernel log message that the driver was loaded;
- a kernel log message that the card was found on the bus: it was removed and rescanned, or replaced;
- the GPUs were released and acquired again, which is done to free them for a reset;
- if the kernel log is not readable: the driver was not loaded, and responds now;
- the driver had requested a reset or a reboot, and no longer does;
- fewer volatile uncorrected ECC errors than in an earlier NVML session. Within one session, a user may have cleared
  them.

Neither a new NVML session nor a restart of the exporter resets a GPU, and a GPU that was lost and responds again may
still have the same fault.
"""

from __future__ import annotations

from typing import Final

from gpu_triage.read.gpu.recovery import GPU_RECOVERY_ACTION
from gpu_triage.read.incidents.ledger import Board
from gpu_triage.sampler.driver import DriverWatch
from gpu_triage.sampler.host_gpus import GpuRecord

_NOT_LOADED: Final = "driver_not_loaded"

_ACTIONS_DONE_BY_A_RESET: Final = frozenset(
    map(
        GPU_RECOVERY_ACTION.value_of,
        ("GPU reset", "node reboot", "drain and reset", "reset the bus", "reboot the system"),
    )
)


class ResetWatch:
    """Tracks resets that the exporter itself noticed. Only the sampler's thread calls it."""

    def __init__(self) -> None:
        self._away = False
        self._back_at: float | None = None
        self._noticed: dict[str, float] = {}
        self._sessions: dict[str, tuple[object, float]] = {}

    def see_driver(self, driver: DriverWatch, now: float, *, kernel_readable: bool) -> None:
        """Update whether the GPUs are released or have no driver; `now` in monotonic seconds."""
        not_loaded = driver.error is not None and driver.error.reason == _NOT_LOADED
        if driver.released or (not_loaded and not kernel_readable):
            self._away = True
        elif driver.versions is not None and self._away:
            self._away, self._back_at = False, now

    def see_session(self, record: GpuRecord, now: float) -> None:
        """Track which NVML session a GPU is in; `now` in monotonic seconds."""
        known = self._sessions.get(record.key)
        if record.device is not None and (known is None or known[0] is not record.device):
            self._sessions[record.key] = (record.device, now)

    def compare(self, before: Board, after: Board, *, first_of_session: bool, now: float) -> None:
        """Check what changed on a responding board for signs of a reset; `now` in monotonic seconds."""
        asked = before.recovery_action in _ACTIONS_DONE_BY_A_RESET and after.recovery_action == 0
        fewer = (after.uncorrected or 0) < (before.uncorrected or 0) and after.uncorrected is not None
        if asked or (fewer and first_of_session):
            self._noticed[after.uuid] = now
        elif self._back_at is not None and self._noticed.get(after.uuid, 0.0) < self._back_at:
            self._noticed[after.uuid] = self._back_at

    def is_first_reading(self, record: GpuRecord, read_at: float, compared_at: float | None) -> bool:
        """Whether a reading is the first of this session; times in monotonic seconds, None before any comparison."""
        session = self._sessions.get(record.key)
        since = session[1] if session is not None else 0.0
        return read_at >= since and (compared_at is None or compared_at < since)

    def remember(self, uuid: str, at: float) -> None:
        """Add a reset of this boot that was noticed before the exporter started; `at` in monotonic seconds."""
        self._noticed[uuid] = max(at, self._noticed.get(uuid, 0.0))

    def forget(self, known: frozenset[str]) -> None:
        """Forget all GPUs except those with these keys."""
        self._sessions = {key: session for key, session in self._sessions.items() if key in known}
        self._noticed = {key: at for key, at in self._noticed.items() if key in known}

    def reset_at(self, uuid: str, *kernel: float | None) -> float | None:
        """Monotonic second of a GPU's last reset, noticed or according to the kernel; None if unknown."""
        return max((at for at in (*kernel, self._noticed.get(uuid)) if at is not None), default=None)
