"""The finding of a process that is bound to CPUs far from its GPU."""

from __future__ import annotations

import pytest
from tests.one_shot import finding, look_at

from gpu_triage_simulator import load_scenario

pytestmark = pytest.mark.slow
AT = 60.0


def test_how_far_a_process_is_from_its_gpu_is_told() -> None:
    report = look_at(load_scenario("dual-a10"), AT)
    measured = finding(report, "numa.mismatch").measured
    assert measured == "GPU on node 0, on far nodes: python (24820) at distance 32"
