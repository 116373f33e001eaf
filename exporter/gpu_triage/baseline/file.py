"""Baselines on disk: read when they change, written in whole or not at all."""

from __future__ import annotations

import hashlib
import os
import stat
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from gpu_triage.baseline.document import MOST_BYTES, decode, encode
from gpu_triage.baseline.facts import HostFacts
from gpu_triage.errors import BaselineError

_MODE: Final = 0o644
_REASONS: Final = {FileNotFoundError: "missing", NotADirectoryError: "missing", PermissionError: "no_permission"}

Identity = tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Recorded:
    """A baseline.

    Attributes:
        facts: what it says.
        sha256: of the file, in hexadecimal, as sha256sum prints it.
    """

    facts: HostFacts
    sha256: str


def read_baseline(path: Path) -> Recorded:
    """The baseline in a file.

    Raises:
        BaselineError: ``missing``, ``no_permission``, ``io_error``, ``not_a_file``, ``too_large``, ``malformed`` or
            ``unknown_version``; names the file and the next step.
    """
    try:
        # A pipe would not return.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise BaselineError("not_a_file", f"{path}: is no file; name one that gpu-triage baseline write wrote")
            with os.fdopen(descriptor, "rb", closefd=False) as file:
                content = file.read(MOST_BYTES + 1)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise _failure(path, error, "cannot be read") from error
    if len(content) > MOST_BYTES:
        raise BaselineError("too_large", f"{path}: is larger than {MOST_BYTES >> 20} MiB; record the baseline anew")
    try:
        return Recorded(decode(content.decode("utf-8-sig")), hashlib.sha256(content).hexdigest())
    except UnicodeDecodeError as error:
        raise BaselineError("malformed", f"{path}: is not UTF-8 at byte {error.start}; save it as UTF-8") from error
    except BaselineError as error:
        raise BaselineError(error.reason, f"{path}: {error.detail}") from error


def identity_of(path: Path) -> Identity | None:
    """What changes when a file is replaced or written to; None where it cannot be told."""
    try:
        status = path.stat()
    except OSError:
        return None
    return (status.st_dev, status.st_ino, status.st_mtime_ns, status.st_size)


def recorded(facts: HostFacts) -> Recorded:
    """The baseline that a file with these facts would hold."""
    text = encode(facts)
    return Recorded(decode(text), hashlib.sha256(text.encode()).hexdigest())


def write_baseline(path: Path, facts: HostFacts) -> None:
    """Write a file that replaces the one there is, atomically.

    Raises:
        BaselineError: ``missing`` (its folder), ``no_permission`` or ``io_error``.
    """
    partial: str | None = None
    try:
        descriptor, partial = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(encode(facts))
            file.flush()
            os.fchmod(file.fileno(), _MODE)
            os.fsync(file.fileno())
        Path(partial).replace(path)
        partial = None
    except OSError as error:
        raise _failure(path, error, "cannot be written") from error
    finally:
        if partial is not None:
            Path(partial).unlink(missing_ok=True)


def _failure(path: Path, error: OSError, what: str) -> BaselineError:
    reason = _REASONS.get(type(error), "io_error")
    step = (
        "make its folder first" if "written" in what and reason == "missing" else "check the path and its permissions"
    )
    return BaselineError(reason, f"{path}: {what}: {error.strerror or error}; {step}")
