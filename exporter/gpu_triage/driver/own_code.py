"""Keeps the program's code in memory, so that a running exporter works on when its package is replaced on disk.

Modules that scrapes don't need are imported on first use, and child processes import the package again. After ``pip
install --upgrade``, or in a rebuilt virtual environment, such imports would fail or mix two versions. So the daemon
copies its code to an anonymous file of 2 MiB, and imports the rest from there; importing all at once takes 12 MiB.
"""

import logging
import os
import sys
import zipfile
from collections.abc import Iterator
from importlib.util import MAGIC_NUMBER, cache_from_source, find_spec
from pathlib import Path
from typing import Final

import gpu_triage
from gpu_triage.log import fields

log = logging.getLogger(__name__)

_PACKAGES: Final = ("gpu_triage", "markdown_it", "mdurl", "prometheus_client", "pynvml", "yaml")
"""What is imported after the start. No C extensions: they can't be loaded from an archive."""
_TOOLS: Final = (Path("gpu_triage/cli"), Path("gpu_triage/alerting"))
_SUFFIXES: Final = frozenset({".py", ".json", ".toml", ".md", ".txt", ".css", ".js"})
_DESCRIPTORS: Final = "/proc/self/fd/"


def keep_code() -> None:
    """Import from a copy in memory from now on. Call it before starting threads."""
    try:
        descriptor = os.memfd_create("gpu-triage-code")
        with os.fdopen(os.dup(descriptor), "wb") as file, zipfile.ZipFile(file, "w") as archive:
            for path, content in (each for package in _PACKAGES for each in _files(package)):
                archive.writestr(zipfile.ZipInfo(str(path)), content, zipfile.ZIP_DEFLATED, compresslevel=1)
    except OSError as error:
        log.warning("restart the exporter after each upgrade", extra=fields(cause=f"no copy of its code: {error}"))
        return
    root = f"{_DESCRIPTORS}{descriptor}"
    sys.path.insert(0, root)
    for name, module in tuple(sys.modules.items()):
        if name.partition(".")[0] in _PACKAGES and hasattr(module, "__path__"):
            module.__path__ = [f"{root}/{name.replace('.', '/')}"]


def kept_code() -> int | None:
    """The descriptor of the copy, a zip archive; None without one."""
    path = gpu_triage.__path__[0]
    return int(path.removeprefix(_DESCRIPTORS).partition("/")[0]) if path.startswith(_DESCRIPTORS) else None


def _files(package: str) -> Iterator[tuple[Path, bytes]]:
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        return
    origin = Path(spec.origin)
    folder = origin.parent if spec.submodule_search_locations else None
    for path in (origin,) if folder is None else sorted(folder.rglob("*")):
        name = path.relative_to(origin.parent if folder is None else folder.parent)
        if path.suffix in _SUFFIXES and not any(map(name.is_relative_to, _TOOLS)):
            yield _compiled(path, name) or (name, path.read_bytes())


def _compiled(source: Path, name: Path) -> tuple[Path, bytes] | None:
    """The cached bytecode of a module; None if it is missing or outdated."""
    status = source.stat()
    stamp = b"".join((each & 0xFFFFFFFF).to_bytes(4, "little") for each in (0, int(status.st_mtime), status.st_size))
    try:
        code = Path(cache_from_source(str(source))).read_bytes()
    except OSError:
        return None
    return (name.with_suffix(".pyc"), code) if code.startswith(MAGIC_NUMBER + stamp) else None
