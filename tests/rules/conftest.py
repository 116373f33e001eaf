"""What the tests of single alerts share."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.conftest import RequiresTool
from tests.rules.handwritten import Firing, Told, firing_of, told_by


@pytest.fixture
def firing(requires_tool: RequiresTool, tmp_path: Path) -> Firing:
    """The minutes at which an alert fires, given series."""
    return firing_of(requires_tool("promtool"), tmp_path)


@pytest.fixture
def told(requires_tool: RequiresTool, tmp_path: Path) -> Told:
    """The alerts of a name at a minute, with their texts, given series."""
    return told_by(requires_tool("promtool"), tmp_path)
