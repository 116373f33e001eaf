"""When each GPU was last initialised anew: what it reported before that is of the past.

These signs count, and nothing else:

- the boot of the host (where the monotonic clock begins);
- the kernel log says that the driver was loaded;
- the kernel log says that the card was found on the bus: taken off and rescanned, or replaced;
- the GPUs were released and acquired again: somebody wanted them free for a reset;
- where the kernel log is not heard: the driver was not loaded, and answers now;
- the driver had asked for a reset or a reboot, and asks for nothing now;
- volatile uncorrected ECC errors are fewer than in an earlier NVML session: within one, somebody may have cleared them.

Neither a new NVML session nor a restart of the exporter resets anything, and a GPU that was lost and answers again may
have the same fault as before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gpu_triage.gpu.recovery import GPU_RECOVERY_ACTION
from gpu_triage.incidents.ledger import Board
from gpu_triage.sampler.driver import DriverWatch
from gpu_triage.sampler.gpu import GpuRecord

_NOT_LOADED: Final = "driver_not_loaded"

_ACTIONS_DONE_BY_A_RESET: Final = frozenset(
    map(
        GPU_RECOVERY_ACTION.value_of,
        ("GPU reset", "node reboot", "drain and reset", "reset the bus", "reboot the system"),
    )
)


@dataclass(frozen=True, slots=True)
class Signs:
    """What the kernel tells of resets, in monotonic seconds; None where it tells nothing.

    Attributes:
        boot_at: when the host booted.
        loaded_at: when the driver was last loaded.
        found_at: when the kernel last found the card.
    """

    boot_at: float | None = None
    loaded_at: float | None = None
    found_at: float | None = None


class ResetWatch:
    """Keeps the resets that the exporter noticed itself. Only the sampler's thread calls it."""

    def __init__(self) -> None:
        self._away = False
        self._back_at: float | None = None
        self._noticed: dict[str, float] = {}
        self._sessions: dict[str, tuple[object, float]] = {}

    def see_driver(self, driver: DriverWatch, now: float, *, kernel_heard: bool) -> None:
        """Take in whether the GPUs are released or have no driver; `now` in monotonic seconds."""
        not_loaded = driver.error is not None and driver.error.reason == _NOT_LOADED
        if driver.released or (not_loaded and not kernel_heard):
            self._away = True
        elif driver.versions is not None and self._away:
            self._away, self._back_at = False, now

    def see_session(self, record: GpuRecord, now: float) -> None:
        """Take in in which session a GPU is asked; `now` in monotonic seconds."""
        known = self._sessions.get(record.key)
        if record.device is not None and (known is None or known[0] is not record.device):
            self._sessions[record.key] = (record.device, now)

    def compare(self, before: Board, after: Board, *, first_of_session: bool, now: float) -> None:
        """Take in what changed on a board that answers; `now` in monotonic seconds."""
        asked = before.recovery_action in _ACTIONS_DONE_BY_A_RESET and after.recovery_action == 0
        fewer = (after.uncorrected or 0) < (before.uncorrected or 0) and after.uncorrected is not None
        if asked or (fewer and first_of_session):
            self._noticed[after.uuid] = now
        elif self._back_at is not None and self._noticed.get(after.uuid, 0.0) < self._back_at:
            self._noticed[after.uuid] = self._back_at

    def is_first_reading(self, record: GpuRecord, read_at: float, compared_at: float | None) -> bool:
        """Whether a reading is the first of this session; times in monotonic seconds, None where none was compared."""
        session = self._sessions.get(record.key)
        since = session[1] if session is not None else 0.0
        return read_at >= since and (compared_at is None or compared_at < since)

    def remember(self, uuid: str, at: float) -> None:
        """Take in a reset that was noticed in this boot before the exporter started, at a monotonic second."""
        self._noticed[uuid] = max(at, self._noticed.get(uuid, 0.0))

    def forget(self, known: frozenset[str]) -> None:
        """Forget all GPUs but those with these keys."""
        self._sessions = {key: session for key, session in self._sessions.items() if key in known}
        self._noticed = {key: at for key, at in self._noticed.items() if key in known}

    def reset_at(self, record: GpuRecord, signs: Signs) -> float | None:
        """Monotonic second of the last reset of a GPU; None where none is known."""
        times = (signs.boot_at, signs.loaded_at, signs.found_at, self._noticed.get(record.labels.uuid))
        return max((at for at in times if at is not None), default=None)
