"""What the operator gave, before it is understood: the text of an option, the content of a file."""

from __future__ import annotations

import os
import stat
from dataclasses import dataclass

from gpu_triage.errors import ConfigError

MAX_FILE_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Given:
    """One option's text and where it was written.

    Attributes:
        texts: one text; several only for an option that may be given several times.
        source: the flag, ``environment variable NAME`` or ``config.yml: key``, for messages.
    """

    texts: tuple[str, ...]
    source: str


def read_document(path: str) -> bytes:
    """The content of a regular file of at most 1 MiB.

    Raises:
        ConfigError: the file cannot be read, is no regular file, or is larger.
    """
    try:
        # Not to wait for a writer where the path is a FIFO.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:  # noqa: PTH123 - a descriptor, no path
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise ConfigError(f"{path}: is no regular file; name a readable file")
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}; name a readable file") from error
    if len(content) > MAX_FILE_BYTES:
        raise ConfigError(f"{path}: is larger than 1 MiB; name a smaller file")
    return content
