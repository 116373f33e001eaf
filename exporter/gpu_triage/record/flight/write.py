"""Writes a flight recording; run with ``python -m`` by `WritingProcess`."""

import json
import os
import pickle
import signal
import sys
from pathlib import Path
from typing import Final

from gpu_triage.documents.files import discard_partials, write_file
from gpu_triage.documents.process_lock import ProcessLock
from gpu_triage.errors import FlightRecorderError, LockTaken
from gpu_triage.record.bundle import archived
from gpu_triage.record.capture import Captured
from gpu_triage.record.flight.directory import LOCK, SUFFIX, failure, prune, recorded_before, refuse_unusable
from gpu_triage.record.flight.process import AGAIN_SECONDS, WRITING_SECONDS
from gpu_triage.record.masking import Masker, local_masker, masked

_NICENESS: Final = 10


def write_here(directory: Path, name: str, captured: Captured, verdict: str, masker: Masker) -> str:
    """Write a recording in this process, as RecordingWriter does."""
    refuse_unusable(directory)
    lock = ProcessLock(directory / LOCK)
    try:
        # Another exporter, or a leftover process of a previous one, may be writing the same recording.
        lock.acquire(wait=True)
        before = recorded_before(directory, name, AGAIN_SECONDS)
        if before is not None:
            return before
        # Leftovers of interrupted writes: while the lock is held, no other process is writing them.
        discard_partials(directory / f"*{SUFFIX}")
        write_file(directory / name, archived(masked(captured, masker, verdict)))
        prune(directory)
    except LockTaken as error:
        raise FlightRecorderError("in_use", f"{directory}: {error}") from error
    except OSError as error:
        raise failure(directory, error) from error
    finally:
        lock.release()
    return name


def main() -> None:
    """Write the recording on standard input, and print the result on standard output."""
    # If the exporter dies, nothing else would end this process, so it sets its own timeout. SIGTERM is ignored so that
    # the recording gets finished: a faulty host is often rebooted at once.
    signal.alarm(round(WRITING_SECONDS))
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.nice(_NICENESS)
    try:
        # From the process that started this one.
        directory, name, captured, verdict = pickle.load(sys.stdin.buffer)  # noqa: S301
        answer = {"file": write_here(directory, name, captured, verdict, local_masker())}
    except (EOFError, pickle.UnpicklingError):
        answer = {"error": "io_error", "detail": "the exporter ended before it had handed over all data"}
    except FlightRecorderError as failed:
        answer = {"error": failed.reason, "detail": failed.detail}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
