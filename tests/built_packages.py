"""The deb and the rpm, built for the Python of this host's distribution."""

import os
import re
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from deploy.packages.build import PYTHONS, Target, build_packages

_SYSTEM_PYTHON: Final = Path("/usr/bin/python3")


class Packages(NamedTuple):
    """Where they are, and the version of Python that they are for."""

    deb: Path
    rpm: Path
    python: str


def build(repository: Path, folder: Path) -> Packages:
    """Build both; the test is skipped on a host with another Python than those that packages are built for."""
    found = re.search(r"3\.\d+", _SYSTEM_PYTHON.resolve().name) if _SYSTEM_PYTHON.exists() else None
    if found is None or found[0] not in PYTHONS:
        pytest.skip(f"{_SYSTEM_PYTHON} is no Python that packages are built for")
    architecture = {"x86_64": "amd64", "aarch64": "arm64"}[os.uname().machine]
    return Packages(*build_packages(repository, Target(found[0], architecture, "gzip"), folder), found[0])
