from pathlib import Path

import pytest
from tests.mig_layouts import cut, seven
from tests.rig import Rig, only, pair_with, rig, scenario_with

pytestmark = pytest.mark.slow
LEAN = only("gpm", "mig", "modes", "activity", "identity")


def profiles(running: Rig, gpu: str = "0") -> dict[str, str]:
    """Profile by MIG UUID, as published for a GPU."""
    return {labels["mig_uuid"]: labels["profile"] for labels, _ in running.series("gpu_mig_info", gpu=gpu)}


def test_reconfiguration_shows_the_new_instances_and_drops_the_old_within_a_round(tmp_path: Path) -> None:
    # The new ones get the old ones' indices, and so their handles, and some of their ids.
    scenario = scenario_with(
        tmp_path,
        "h100-8",
        cut("3g.40gb 1 0 0 0.9", "3g.40gb 2 0 1 0.8"),
        cut("1g.10gb 9 0 0 0.1", "3g.40gb 1 0 1 0.2", "2g.20gb 5 0 2 0.3", at="22s"),
    )
    with rig(scenario, LEAN) as running:
        running.run_to(21)
        before = profiles(running)
        assert sorted(before.values()) == ["3g.40gb", "3g.40gb"]
        running.run_to(26)
        after = profiles(running)
        assert sorted(after.values()) == ["1g.10gb", "2g.20gb", "3g.40gb"]
        assert not set(before) & set(after)
        published = {labels["mig_uuid"] for labels, _ in running.series("gpu_mig_memory_used_bytes")}
        assert published == set(after)
        running.run_to(31)
        active = {after[labels["mig_uuid"]]: value for labels, value in running.series("gpu_mig_sm_active_ratio")}
        assert active == pytest.approx({"1g.10gb": 0.09, "2g.20gb": 0.27, "3g.40gb": 0.18}, abs=0.02)
        assert running.series("gpu_exporter_errors_total") == []


def test_mig_switched_on_and_off_moves_what_can_be_told_and_no_counter_goes_back(tmp_path: Path) -> None:
    with rig(pair_with(tmp_path, "h100-8", seven("20s", until="100s")), LEAN) as running:
        running.run_to(19)
        busy = running.value("gpu_busy_seconds_total", gpu="0")
        assert busy is not None
        assert busy > 15
        assert profiles(running) == {}
        running.run_to(30)
        assert len(profiles(running)) == 7
        for name in ("gpu_sm_utilization_ratio", "gpu_busy_seconds_total", "gpu_sm_active_ratio"):
            assert running.value(name, gpu="0") is None
            assert running.value(name, gpu="1") is not None
        running.run_to(64)
        assert running.value("gpu_mig_mode", gpu="0") == 1
        running.run_to(106)
        assert profiles(running) == {}
        running.run_to(170)
        assert running.value("gpu_sm_utilization_ratio", gpu="0") is not None
        assert running.value("gpu_sm_active_ratio", gpu="0") is not None
        assert (running.value("gpu_busy_seconds_total", gpu="0") or 0) > busy
        assert running.series("gpu_exporter_errors_total") == []
