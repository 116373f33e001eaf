"""The directory for flight recordings: limits their number and size by deleting the oldest."""

import os
import re
import tempfile
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Final

from gpu_triage.documents.files import unwritable
from gpu_triage.errors import FlightRecorderError

MOST_FILES: Final = 20
MOST_BYTES: Final = 64 << 20
"""Limit for all recordings together; one takes about a megabyte."""

LEAST_FREE_BYTES: Final = 64 << 20
"""Free disk space below which nothing is written, so that other programs don't run out."""

SUFFIX: Final = ".tar.gz"
LOCK: Final = ".lock"
_NAME: Final = re.compile(r"([0-9]{8}T[0-9]{6}Z)-(.+)" + re.escape(SUFFIX))
_TIME: Final = "%Y%m%dT%H%M%SZ"
_UNSAFE: Final = re.compile(r"[^a-z0-9.]+")
_LONGEST: Final = 80


def file_name(wall: float, subject: str, code: str) -> str:
    """The file name of a recording: ``20260115T033000Z-gpu-3-xid.critical.tar.gz``."""
    cause = _UNSAFE.sub("-", f"{subject}-{code}".lower()).strip("-")[:_LONGEST]
    return f"{time.strftime(_TIME, time.gmtime(wall))}-{cause}{SUFFIX}"


def refuse_unusable(directory: Path) -> None:
    """Create the directory; raises FlightRecorderError, with the reason, if no recording could be written there."""
    try:
        directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=directory).close()
        free = os.statvfs(directory)
    except OSError as error:
        raise failure(directory, error) from error
    if free.f_bavail * free.f_frsize < LEAST_FREE_BYTES:
        detail = f"{directory}: fewer than {LEAST_FREE_BYTES >> 20} MiB are free; free some space"
        raise FlightRecorderError("no_space", detail)


def recorded_before(directory: Path, name: str, seconds: float) -> str | None:
    """The name of a recording of the same finding from the last `seconds`, or None."""
    mine = _NAME.fullmatch(name)
    assert mine is not None  # noqa: S101 - created by `file_name`
    # Names sort by time.
    recorded_at = datetime.strptime(mine[1], _TIME).replace(tzinfo=timezone.utc)
    least = (recorded_at - timedelta(seconds=seconds)).strftime(_TIME)
    for each in sorted(directory.glob(f"*{SUFFIX}"), reverse=True):
        found = _NAME.fullmatch(each.name)
        if found and found[2] == mine[2] and least < found[1] <= mine[1]:
            return each.name
    return None


def prune(directory: Path) -> None:
    """Delete the oldest recordings until the limits are met, but not the newest. Other files don't count."""
    kept = [path for path in sorted(directory.glob(f"*{SUFFIX}")) if _NAME.fullmatch(path.name)]
    sizes = [path.lstat().st_size for path in kept]
    while len(kept) > 1 and (len(kept) > MOST_FILES or sum(sizes) > MOST_BYTES):
        kept.pop(0).unlink(missing_ok=True)
        sizes.pop(0)


def failure(path: Path, error: OSError) -> FlightRecorderError:
    return FlightRecorderError(*unwritable(path, error, "--flight-recorder.directory"))
