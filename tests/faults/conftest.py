"""What tests of a real daemon on the compiled driver share."""

from pathlib import Path

import pytest
from tests.faults.stand_in import Disk, StandIn


@pytest.fixture
def host(tmp_path: Path) -> StandIn:
    """A host of four GPUs."""
    return StandIn(tmp_path, gpus=4)


@pytest.fixture
def disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(tmp_path, monkeypatch)
