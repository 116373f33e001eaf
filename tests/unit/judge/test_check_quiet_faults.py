"""Faults that look like rest: no NVLink or peer access on a whole host, a server that never answers, short pulses."""

from pathlib import Path

import pytest
from tests.evidence import evidence_of
from tests.one_shot import codes, finding, look_at
from tests.rig import scenario_with, three_with

from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.read.gpu.presence import GPU_UP
from gpu_triage.read.gpu.throttle import GPU_THROTTLE_ACTIVE, GPU_THROTTLE_SECONDS_TOTAL
from gpu_triage.read.host.cpu import GPU_HOST_PROCESSES_BLOCKED
from gpu_triage.read.host.disk import GPU_HOST_DISK_BUSY_SECONDS_TOTAL
from gpu_triage.read.host.nfs import GPU_HOST_NFS_OPERATION_SECONDS_TOTAL, GPU_HOST_NFS_OPERATIONS_TOTAL
from gpu_triage.read.host.pressure import GPU_HOST_PRESSURE_SECONDS_TOTAL

pytestmark = pytest.mark.slow


AT = 60.0
GPU = ("0", "GPU-a")


def event(effect: str, gpu: int | None = None) -> str:
    concerned = "" if gpu is None else f"gpu = {gpu}\n"
    return f"at = 0\n{concerned}effect = {{ {effect} }}"


def test_p2p_that_an_administrator_disabled_on_every_pair_of_an_nvlink_machine_is_found(tmp_path: Path) -> None:
    disabled = [event('kind = "p2p", status = "disabled_by_regkey"', gpu) for gpu in range(3)]
    report = look_at(three_with(tmp_path, "h100-8", *disabled), AT)
    assert all("p2p.unavailable" in codes(report, f"GPU {gpu}") for gpu in range(3))


def test_p2p_that_no_pair_has_is_no_finding_without_nvlink(tmp_path: Path) -> None:
    disabled = [event('kind = "p2p", status = "disabled_by_regkey"', gpu) for gpu in range(2)]
    report = look_at(scenario_with(tmp_path, "rtx-4070-ti-super", *disabled), AT)
    assert "p2p.unavailable" not in codes(report, "GPU 0")


def all_down(gpu: int) -> str:
    return event(f'kind = "nvlink_down", links = {list(range(18))}', gpu)


@pytest.mark.parametrize("fabric", [(), ('kind = "fabric", state = 3',)])
def test_a_host_that_booted_with_all_nvlinks_down_is_found(tmp_path: Path, fabric: tuple[str, ...]) -> None:
    events = [*(all_down(gpu) for gpu in range(3)), *(event(each, gpu) for each in fabric for gpu in range(3))]
    report = look_at(three_with(tmp_path, "h100-8", *events), AT)
    assert all("nvlink.down" in codes(report, f"GPU {gpu}") for gpu in range(3))


def test_nvlinks_that_wait_for_the_fabric_are_the_fabrics_trouble(tmp_path: Path) -> None:
    waits = [event('kind = "fabric", state = 2', gpu) for gpu in range(3)]
    report = look_at(three_with(tmp_path, "h100-8", *(all_down(gpu) for gpu in range(3)), *waits), AT)
    assert finding(report, "fabric.unhealthy").measured
    assert "nvlink.down" not in codes(report, "GPU 0")


def stalled(blocked: float, *, reads: float, psi: bool = False, disk: float = 0.0) -> HostEvidence:
    rounds = []
    for second in range(10):
        samples = [
            GPU_HOST_PROCESSES_BLOCKED.sample(blocked),
            GPU_HOST_NFS_OPERATIONS_TOTAL.sample(5000 + reads * second, "/data", "READ"),
            GPU_HOST_NFS_OPERATION_SECONDS_TOTAL.sample(50, "/data", "READ"),
            GPU_HOST_DISK_BUSY_SECONDS_TOTAL.sample(disk * second, "nvme0n1"),
        ]
        if psi:
            samples.append(GPU_HOST_PRESSURE_SECONDS_TOTAL.sample(0.0, "io", "some"))
        rounds.append((second, samples))
    return evidence_of(*rounds)


def test_a_dead_nfs_server_is_found_on_a_host_without_psi() -> None:
    assert stalled(3, reads=0).scarce_storage() == "NFS /data answers nothing, 3 tasks wait for I/O"


@pytest.mark.parametrize(
    "host",
    [stalled(0, reads=0), stalled(3, reads=1), stalled(3, reads=0, psi=True), stalled(3, reads=0, disk=0.2)],
    ids=["nobody waits", "it answers", "PSI tells", "a disk is at work"],
)
def test_an_nfs_mount_at_rest_is_no_scarcity(host: HostEvidence) -> None:
    assert host.scarce_storage() is None


@pytest.mark.parametrize("at", range(60, 200, 20))
def test_short_pulses_of_heat_are_heat(tmp_path: Path, at: int) -> None:
    pulses = event('kind = "pulses", of = "hw_thermal", milliseconds = 170, per_minute = 35', 0)
    report = look_at(scenario_with(tmp_path, "rtx-4070-ti-super", pulses), float(at))
    assert "power.hw_slowdown" not in codes(report, "GPU 0")
    assert report.gpus[0].bottleneck.name != "power_brake"


def slowed(*, heat: bool, counted: float) -> float:
    """Share of unexplained slowdown, of one GPU slowed down in two of ten readings, by heat or not."""
    rounds, seconds = [], 0.0
    for second in range(11):
        on = second in {3, 7}
        seconds += on
        samples = [
            GPU_UP.sample(1, *GPU),
            GPU_THROTTLE_ACTIVE.sample(on, *GPU, "hw_slowdown"),
            GPU_THROTTLE_ACTIVE.sample(on and heat, *GPU, "hw_thermal"),
            GPU_THROTTLE_SECONDS_TOTAL.sample(seconds, *GPU, "hw_slowdown"),
            GPU_THROTTLE_SECONDS_TOTAL.sample(counted * second, *GPU, "hw_thermal"),
        ]
        rounds.append((second, samples))
    return evidence_of(*rounds).gpus[0].unexplained_slowdown


def test_slowdown_is_explained_by_the_bits_of_the_same_readings() -> None:
    assert slowed(heat=True, counted=0.05) == pytest.approx(0.0)
    assert slowed(heat=False, counted=0.0) == pytest.approx(0.2)


def test_slowdown_that_was_counted_in_more_readings_is_explained_by_the_bits_of_these() -> None:
    """A judge that looks every half minute at what is read every 15 seconds: on, on, off, on."""
    rounds = [
        (
            30.0 * place,
            [
                GPU_UP.sample(1, *GPU),
                *(GPU_THROTTLE_ACTIVE.sample(place % 2, *GPU, reason) for reason in ("hw_slowdown", "hw_thermal")),
                *(
                    GPU_THROTTLE_SECONDS_TOTAL.sample(22.5 * place, *GPU, each)
                    for each in ("hw_slowdown", "hw_thermal")
                ),
            ],
        )
        for place in range(5)
    ]
    gpu = evidence_of(*rounds).gpus[0]
    assert gpu.throttled("hw_slowdown") == pytest.approx(0.75)
    assert gpu.unexplained_slowdown == 0.0
