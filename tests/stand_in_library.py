"""Compiles stand-ins of the driver's library, which the loader finds by its name like the real one."""

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest

NAME = "libnvidia-ml.so.1"


def compile_library(source: Path, folder: Path, defines: Iterable[str] = (), name: str = NAME) -> None:
    """Compile one C file to a library in a folder, NVML's by its name; without a compiler, skip the test."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler here to make libraries with")
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-Wall", "-Werror", *defines, "-o", folder / name, source], check=True
    )
