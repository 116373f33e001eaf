"""The state directory, which persists between runs. Only one exporter at a time writes to it; any may read it."""

from pathlib import Path
from typing import Final

from gpu_triage.documents.files import discard_partials, sync_directory
from gpu_triage.documents.process_lock import ProcessLock
from gpu_triage.documents.saved_state import failure
from gpu_triage.errors import LockTaken, StateError

UNIT_STATE_DIRECTORY: Final = Path("/var/lib/gpu-triage")
"""The state directory of an exporter that systemd runs as in deploy/systemd, or Kubernetes as in the chart."""

LOCK: Final = ".lock"  # the file that is there wherever an exporter keeps its own

IN_USE: Final = "in_use"
"""Error reason while another exporter writes to it."""

INCIDENTS: Final = "incidents"
FINDINGS: Final = "findings"
BASELINE: Final = "baseline"


class StateDirectory:
    """The state directory as used by one exporter. Thread-safe."""

    def __init__(self, directory: Path) -> None:
        # Whether the exporter is about to exit, so that it must not wait for a slow disk more than necessary.
        self.hurried = False
        self._directory = directory
        self._lock_path = directory / LOCK
        self._lock = ProcessLock(self._lock_path)
        self._generation = 0

    def path(self, name: str) -> Path:
        """The path of a file, such as ``incidents.json``."""
        return self._directory / f"{name}.json"

    def lock(self) -> int:
        """Ensure that only this process writes here until it exits. Raises StateError.

        Returns the generation of the lock: above 0, and another one each time that the lock had to be acquired. Then
        another exporter may have written here, or the directory is new: reread the files before writing.
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

    def sync(self) -> None:
        """Make writes so far survive a host crash, unless `hurried`: the last sync covers all. Raises StateError."""
        if self.hurried:
            return
        try:
            sync_directory(self._directory)
        except OSError as error:
            raise failure(self._directory, error, "cannot be synced") from error

    def release(self) -> None:
        """Let another exporter write here, when the sampler ends but its process continues."""
        self._lock.release()
