from pathlib import Path

import pynvml
import pytest
from tests.mig_layouts import cut
from tests.nvml_bench import BenchMaker, says
from tests.rig import Rig, only, rig, scenario_with

from gpu_triage.read.gpu.activity import ActivityReader, GpmReader, read_media
from gpu_triage.read.gpu.mig import MigReader, read_mig_uuids
from gpu_triage.read.processes.on_gpu import ProcessesReader

MIB = 2**20
LEAN = only("gpm", "mig", "modes", "activity", "identity")
HOLES = cut("1g.10gb 13 0 6 0.1", "3g.40gb 1 0 0 0.2", "2g.20gb 5 0 3 0.3")


def reader() -> MigReader:
    return MigReader(max_gap_seconds=15.0, retry_seconds=60.0)


@pytest.mark.parametrize(
    ("host", "gpu", "profiles"),
    [
        (("h100-8",), 0, []),
        (("h100-mig",), 1, []),
        (("dual-a10",), 0, []),
        (("a100-power-capped",), 0, []),
        (("h100-8", cut()), 0, []),  # MIG mode without instances
        # Holes between the driver's indices.
        (("h100-8", HOLES), 0, ["3g.40gb", "2g.20gb", "1g.10gb"]),
        (("h100-8", cut("1c.3g.40gb 2 0 0 0", "1g.10gb+me 9 0 1 0")), 0, ["1c.3g.40gb", "1g.10gb+me"]),
    ],
)
def test_a_gpu_has_the_instances_it_is_cut_into(
    bench: BenchMaker, host: tuple[str, ...], gpu: int, profiles: list[str]
) -> None:
    nvml = bench(*host)
    round_ = nvml.round(gpu)
    assert [i.profile for i in reader().read(round_).instances] == profiles
    assert round_.inquiry.failures == []
    asked = nvml.calls("nvmlDeviceGetMigDeviceHandleByIndex")
    assert (asked > 0) == (len(host) > 1)


def test_devices_without_a_name_have_no_profile_and_a_senseless_number_of_devices_is_none(bench: BenchMaker) -> None:
    nvml = bench("h100-8", HOLES)
    nvml.answer("nvmlDeviceGetName", pynvml.NVML_ERROR_NOT_SUPPORTED)
    assert {i.profile for i in reader().read(nvml.round()).instances} == {""}
    nvml.answer("nvmlDeviceGetMaxMigDeviceCount", says(65))
    assert reader().read(nvml.round()).instances == ()


def test_compute_instances_on_one_gpu_instance_show_its_activity_and_cost_one_sample(bench: BenchMaker) -> None:
    nvml, gpu = bench("h100-8", cut("1c.3g.40gb 2 0 0 0.5", "2c.3g.40gb 2 1 1 0.9", "1g.10gb 9 0 2 0.0")), reader()
    gpu.read(nvml.round())
    shared, same, own = gpu.read(nvml.after(5)).instances
    assert shared.uuid != same.uuid
    assert shared.sm_active_ratio == same.sm_active_ratio
    assert shared.sm_active_ratio == pytest.approx(0.8, abs=0.05)
    assert own.sm_active_ratio == 0.0
    assert nvml.calls("nvmlGpmMigSampleGet") == 4


def test_one_refusal_of_gpm_stops_all_instances_for_the_slow_interval(bench: BenchMaker) -> None:
    nvml, gpu = bench("h100-mig"), reader()
    gpu.read(nvml.round())
    nvml.answer("nvmlGpmMigSampleGet", pynvml.NVML_ERROR_NO_PERMISSION)
    failures: list[str] = []
    for _ in range(12):
        round_ = nvml.after(5)
        reading = gpu.read(round_)
        assert [i.memory_used_bytes is not None for i in reading.instances] == [True] * 3
        assert {i.sm_active_ratio for i in reading.instances} == {None}
        failures += round_.inquiry.failures
    assert failures == ["no_permission"]
    assert nvml.live_samples == 0
    nvml.restore("nvmlGpmMigSampleGet")
    for _ in range(3):
        reading = gpu.read(nvml.after(5))
    assert None not in {i.sm_active_ratio for i in reading.instances}


def test_the_parent_in_mig_mode_has_no_utilization_of_any_kind(bench: BenchMaker) -> None:
    nvml = bench("h100-mig")
    nvml.clock.advance(5)
    activity, processes = ActivityReader(3.0), ProcessesReader(32)
    for driver_keeps_samples in (False, True):
        if driver_keeps_samples:
            # "No new sample" must not pass for "did nothing".
            nvml.answer("nvmlDeviceGetProcessUtilization", pynvml.NVML_ERROR_NOT_FOUND)
        round_ = nvml.round()
        read = activity.read(round_)
        assert (read.sm_utilization_ratio, read.memory_utilization_ratio) == (None, None)
        assert (read.busy_seconds, read.observed_seconds) == (None, None)
        assert read.performance_state == 0
        assert read_media(round_).encoder_utilization_ratio is None
        assert GpmReader(3.0, 60.0).read(round_).sm_active_ratio is None
        listed = processes.read(round_)
        assert listed.counts == {"compute": 3, "graphics": 0, "compute_graphics": 0, "mps": 0}
        held = [(52100, 35600 * MIB), (52200, 14200 * MIB), (52300, 3100 * MIB)]
        assert [(p.pid, p.memory_bytes) for p in listed.processes] == held
        assert {p.sm_utilization_ratio for p in listed.processes} == {None}
        assert round_.inquiry.failures == []


def test_the_parts_of_a_gpu_are_named_by_their_instances(bench: BenchMaker) -> None:
    nvml = bench("h100-mig")
    shown = {(i.gpu_instance, i.compute_instance): i.uuid for i in reader().read(nvml.round()).instances}
    assert len(shown) == 3
    assert read_mig_uuids(nvml.round().inquiry) == shown
    # A part that does not answer costs only itself.
    nvml.answer("nvmlDeviceGetGpuInstanceId", pynvml.NVML_ERROR_UNKNOWN)
    inquiry = nvml.round().inquiry
    assert read_mig_uuids(inquiry) == {}
    assert inquiry.failures == ["unknown"] * 3
    whole = nvml.round(1).inquiry
    assert (read_mig_uuids(whole), whole.failures) == ({}, [])


def profiles(running: Rig, gpu: str = "0") -> dict[str, str]:
    """Profile by MIG UUID, as published for a GPU."""
    return {labels["mig_uuid"]: labels["profile"] for labels, _ in running.series("gpu_mig_info", gpu=gpu)}


@pytest.mark.slow
def test_reconfiguration_shows_the_new_instances_and_drops_the_old_within_a_round(tmp_path: Path) -> None:
    # The new ones get the old ones' indices, and so their handles, and some of their ids.
    first = cut("3g.40gb 1 0 0 0.9", "3g.40gb 2 0 1 0.8")
    then = cut("1g.10gb 9 0 0 0.1", "3g.40gb 1 0 1 0.2", "2g.20gb 5 0 2 0.3", at="22s")
    with rig(scenario_with(tmp_path, "h100-8", first, then), LEAN) as running:
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
