"""The license of a vGPU, as NVML reports it in the virtual machine."""

from pathlib import Path

import pytest
from tests.judged import judged
from tests.rig import only, scenario_with

from gpu_triage.judge.findings.table import Severity
from gpu_triage.judge.findings.verdicts import Verdict

BASE = "idle-downshift"
LEAN = only("vgpu_license", "power", "activity", "identity", sample_fast_seconds=5.0)


def license_event(*, licensed: bool, at: str = "0") -> str:
    return f'at = {at}\ngpu = 0\neffect = {{ kind = "vgpu_license", licensed = {str(licensed).lower()} }}'


@pytest.mark.slow
def test_a_vgpu_without_its_license_is_to_be_watched_until_it_has_it(tmp_path: Path) -> None:
    events = license_event(licensed=False), license_event(licensed=True, at="420")
    with judged(scenario_with(tmp_path, BASE, *events), LEAN) as host:
        host.run_to(400)
        (found,) = [each for each in host.report.findings if each.check.code == "vgpu.unlicensed"]
        assert (found.gpu, found.severity) == ("0", Severity.WARNING)
        assert found.measured == "NVIDIA Virtual Compute Server: unlicensed"
        assert host.report.gpus[0].verdict is Verdict.WATCH
        host.run_to(500)
        assert "vgpu.unlicensed" not in [each.check.code for each in host.report.findings]
