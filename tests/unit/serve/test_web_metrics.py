from __future__ import annotations

import pytest
from tests.rig import rig

from gpu_triage.read.exporter.exporter_health import WebConfigHealth
from gpu_triage_simulator import load_scenario


@pytest.mark.parametrize(("success", "value"), [(True, 1.0), (False, 0.0)])
def test_a_web_configuration_says_whether_it_is_in_force_and_since_when(success: bool, value: float) -> None:  # noqa: FBT001
    with rig(load_scenario("dual-a10")) as running:
        running.run(1)
        assert running.series("gpu_exporter_web_config_reload_success") == []
        running.sampler.status.web_config = WebConfigHealth(success=success, loaded_at=1e9)
        running.run(1)
        assert running.value("gpu_exporter_web_config_reload_success") == value
        assert running.value("gpu_exporter_web_config_last_reload_success_timestamp_seconds") == 1e9
