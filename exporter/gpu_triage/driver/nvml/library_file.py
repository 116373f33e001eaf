"""Check that the driver's library file is complete. Mapping a truncated one kills the process with SIGBUS.

The dynamic linker only reads the headers; the first access to a page beyond the end of the file is fatal, and Python
cannot catch that. So the file is checked before loading.
"""

import os
import re
import struct
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import BinaryIO, Final

from gpu_triage.errors import DriverUnavailable

NAME: Final = "libnvidia-ml.so.1"

_CACHE: Final = Path("/etc/ld.so.cache")
_DEFAULT_FOLDERS: Final = ("/lib64", "/usr/lib64", "/lib", "/usr/lib")
_MOST_CACHE_BYTES: Final = 16 << 20

_IDENTITY: Final = b"\x7fELF\x02\x01" if sys.byteorder == "little" else b"\x7fELF\x02\x02"
"""First bytes of a 64-bit ELF file in this machine's byte order; the linker skips 32-bit ones."""
_HEADER: Final = struct.Struct("=32xQ14xHH")
"""Elf64_Ehdr: e_phoff, e_phentsize, e_phnum. Source: elf(5)."""
_HEADER_BYTES: Final = 64
_SEGMENT: Final = struct.Struct("=I4xQ16xQ")
"""Elf64_Phdr: p_type, p_offset, p_filesz."""
_LOADED: Final = 1  # PT_LOAD: a segment that is mapped into memory


def refuse_cut_short(paths: Iterable[Path] | None = None) -> None:
    """Raise if the library the linker would load is shorter than its ELF headers require."""
    for path in library_paths(os.environ.get("LD_LIBRARY_PATH", "")) if paths is None else paths:
        try:
            with path.open("rb") as file:
                needed = _bytes_needed(file)
                size = file.seek(0, os.SEEK_END)
        except OSError:
            continue
        if needed is None:
            continue
        if size < needed:
            detail = f"{path} has {size} of at least {needed} bytes; reinstall the driver's libraries"
            raise DriverUnavailable("library_invalid", detail)
        return


def library_paths(search_path: str, cache: Path = _CACHE) -> Iterator[Path]:
    """Yield the paths where the linker looks for the library, in order; most do not exist."""
    folders = re.split("[:;]", search_path) if search_path else []
    yield from (Path(folder or ".") / NAME for folder in folders)
    try:
        with cache.open("rb") as file:
            known = file.read(_MOST_CACHE_BYTES)
    except OSError:
        known = b""
    # Strings in the cache are NUL-terminated; the tables before them contain no slash followed by this name.
    for found in re.findall(rb"(?<=\0)(/[^\0]*/%b)(?=\0)" % re.escape(NAME.encode()), known):
        yield Path(os.fsdecode(found))
    yield from (Path(folder) / NAME for folder in _DEFAULT_FOLDERS)


def _bytes_needed(file: BinaryIO) -> int | None:
    """Minimum file size according to the ELF headers; None for a file that the linker rejects or skips."""
    header = file.read(_HEADER_BYTES)
    if len(header) < _HEADER_BYTES or not header.startswith(_IDENTITY):
        return None
    offset, entry_bytes, count = _HEADER.unpack_from(header)
    table_bytes = entry_bytes * count
    if entry_bytes < _SEGMENT.size:
        return None
    file.seek(offset)
    table = file.read(table_bytes)
    if len(table) < table_bytes:
        return int(offset + table_bytes)
    segments = (_SEGMENT.unpack_from(table, start) for start in range(0, table_bytes, entry_bytes))
    return max((begin + length for kind, begin, length in segments if kind == _LOADED), default=None)
