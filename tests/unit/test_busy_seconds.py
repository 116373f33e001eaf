from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tests.rig import rig, scenario_with

if TYPE_CHECKING:
    from pathlib import Path


def busy_seconds(tmp_path: Path, *events: str) -> float:
    with rig(scenario_with(tmp_path, "dual-a10", *events)) as running:
        running.run(60)
        busy = running.value("gpu_busy_seconds_total", gpu="0")
        assert busy is not None
        return busy


@pytest.mark.parametrize("lasts", [1, 2, 3, 10])
def test_time_without_the_drivers_samples_is_not_counted_twice(tmp_path: Path, lasts: int) -> None:
    failing = 'effect = { kind = "error", function = "nvmlDeviceGetSamples", code = "UNKNOWN" }'
    healthy = busy_seconds(tmp_path)
    gap = busy_seconds(tmp_path, f'at = "20s"\nuntil = "{20 + lasts}s"\ngpu = 0\n{failing}')
    assert healthy - 3 <= gap <= healthy
