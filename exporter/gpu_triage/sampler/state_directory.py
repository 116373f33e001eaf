"""The state directory: what outlives the exporter. One exporter at a time writes to it; every exporter may read it."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from gpu_triage.documents import discard_partials
from gpu_triage.errors import LockTaken, StateError
from gpu_triage.process_lock import ProcessLock
from gpu_triage.saved_state import failure

IN_USE: Final = "in_use"
"""Reason of the error while another exporter writes to it."""

INCIDENTS: Final = "incidents"
FINDINGS: Final = "findings"
BASELINE: Final = "baseline"


class StateDirectory:
    """The state directory as one exporter uses it. Thread-safe.

    A simulated host has its own files and its own lock: what happens to it must not be remembered of this host.
    """

    def __init__(self, directory: Path, *, simulated: bool) -> None:
        self._directory = directory
        self._suffix = "-simulated" if simulated else ""
        self._lock_path = directory / f".lock{self._suffix}"
        self._lock = ProcessLock(self._lock_path)
        self._generation = 0

    def path(self, name: str) -> Path:
        """The path of a file, such as ``incidents.json``."""
        return self._directory / f"{name}{self._suffix}.json"

    def lock(self) -> int:
        """Make sure that only this process writes here until it ends.

        Returns the generation of the lock: a number above 0 that changes each time the lock had to be acquired. Another
        exporter may have written before, or the directory is a new one, so read the files again before you write them.

        Raises:
            StateError: ``in_use``, ``no_permission``, ``missing``, ``no_space``, ``read_only``, ``not_a_file`` or
                ``io_error``.
        """
        try:
            acquired = self._lock.acquire()
        except LockTaken as taken:
            detail = (
                f"{self._directory}: another exporter writes here ({taken}); stop one of the two, or set another "
                "--state.directory for it"
            )
            raise StateError(IN_USE, detail) from taken
        except OSError as error:
            raise failure(self._lock_path, error, "cannot be locked") from error
        if acquired:
            self._generation += 1
            for name in (INCIDENTS, FINDINGS, BASELINE):
                discard_partials(self.path(name))
        return self._generation

    def release(self) -> None:
        """Let another exporter write here, at the end of a sampler whose process goes on."""
        self._lock.release()
