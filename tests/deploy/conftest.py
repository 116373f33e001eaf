"""What tests of the packages, and of Slurm's scripts, share."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.released import NEWER, Packages, built, packages_in, release
from tests.slurm_node import Node, exporter_of_a_sick_gpu


@pytest.fixture
def node(tmp_path: Path, repository: Path) -> Node:
    return Node(tmp_path, repository)


@pytest.fixture(scope="module")
def sick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The URL of an exporter whose GPU 1 is lost."""
    with exporter_of_a_sick_gpu(tmp_path_factory.mktemp("sick")) as url:
        yield url


@pytest.fixture(scope="session")
def packages() -> Packages:
    return packages_in(release())


@pytest.fixture(scope="session")
def newer() -> Packages:
    """Of a later version, with an option more."""
    return packages_in(built("wheel", "packages", "chart", version=NEWER))
