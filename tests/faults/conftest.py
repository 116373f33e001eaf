"""Where the simulated hosts of the fault matrix keep their files."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

_IN_MEMORY = Path("/dev/shm")  # noqa: S108 - its subdirectories are made by tempfile
_ENOUGH_BYTES = 512 << 20


@pytest.fixture(scope="session", autouse=True)
def files_in_memory() -> Iterator[None]:
    """Hundreds of small files change a second here, and on a disk that alone would take minutes."""
    before = tempfile.tempdir
    if _IN_MEMORY.is_dir() and shutil.disk_usage(_IN_MEMORY).free > _ENOUGH_BYTES:
        tempfile.tempdir = str(_IN_MEMORY)
    yield
    tempfile.tempdir = before
