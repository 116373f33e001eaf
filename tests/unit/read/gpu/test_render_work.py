from __future__ import annotations

from tests.nvml_bench import shown

from gpu_triage.read.gpu import activity, clocks, identity, media, memory, modes
from gpu_triage.read.gpu.activity import ActivityReading
from gpu_triage.read.gpu.clocks import ClocksReading
from gpu_triage.read.gpu.identity import IdentityReading
from gpu_triage.read.gpu.media import MediaReading
from gpu_triage.read.gpu.memory import DeviceMemoryReading
from gpu_triage.read.gpu.modes import ModesReading
from gpu_triage.read.metrics.contract import GpuLabels

GPU = GpuLabels("3", "GPU-3")


def test_activity() -> None:
    reading = ActivityReading(
        sm_utilization_ratio=0.97, memory_utilization_ratio=0.58, busy_seconds=12.5, performance_state=2
    )
    assert shown(activity.ACTIVITY.render(reading, GPU)) == [
        'gpu_sm_utilization_ratio{gpu="3",uuid="GPU-3"} 0.97',
        'gpu_memory_utilization_ratio{gpu="3",uuid="GPU-3"} 0.58',
        'gpu_busy_seconds_total{gpu="3",uuid="GPU-3"} 12.5',
        'gpu_performance_state{gpu="3",uuid="GPU-3"} 2.0',
    ]


def test_an_idle_gpu_shows_zeros_and_one_that_reports_nothing_shows_nothing() -> None:
    assert shown(activity.ACTIVITY.render(ActivityReading(0.0, 0.0, 0.0, 0), GPU)) == [
        'gpu_sm_utilization_ratio{gpu="3",uuid="GPU-3"} 0.0',
        'gpu_memory_utilization_ratio{gpu="3",uuid="GPU-3"} 0.0',
        'gpu_busy_seconds_total{gpu="3",uuid="GPU-3"} 0.0',
        'gpu_performance_state{gpu="3",uuid="GPU-3"} 0.0',
    ]
    assert shown(activity.ACTIVITY.render(ActivityReading(None, None, None, None), GPU)) == []


def test_clocks() -> None:
    reading = ClocksReading({"graphics": 1.98e9, "sm": 1.98e9, "memory": 2.619e9, "video": 1.545e9})
    assert shown(clocks.CLOCKS.render(reading, GPU)) == [
        'gpu_clock_hertz{gpu="3",uuid="GPU-3",clock="graphics"} 1980000000.0',
        'gpu_clock_hertz{gpu="3",uuid="GPU-3",clock="sm"} 1980000000.0',
        'gpu_clock_hertz{gpu="3",uuid="GPU-3",clock="memory"} 2619000000.0',
        'gpu_clock_hertz{gpu="3",uuid="GPU-3",clock="video"} 1545000000.0',
    ]
    assert shown(clocks.CLOCKS.render(ClocksReading({}), GPU)) == []


def test_memory() -> None:
    reading = DeviceMemoryReading(
        total_bytes=80e9,
        used_bytes=70e9,
        free_bytes=9e9,
        reserved_bytes=1e9,
        bar1_total_bytes=128e9,
        bar1_used_bytes=4e6,
    )
    assert shown(memory.MEMORY.render(reading, GPU)) == [
        'gpu_memory_total_bytes{gpu="3",uuid="GPU-3"} 80000000000.0',
        'gpu_memory_used_bytes{gpu="3",uuid="GPU-3"} 70000000000.0',
        'gpu_memory_free_bytes{gpu="3",uuid="GPU-3"} 9000000000.0',
        'gpu_memory_reserved_bytes{gpu="3",uuid="GPU-3"} 1000000000.0',
        'gpu_bar1_memory_total_bytes{gpu="3",uuid="GPU-3"} 128000000000.0',
        'gpu_bar1_memory_used_bytes{gpu="3",uuid="GPU-3"} 4000000.0',
    ]
    assert shown(memory.MEMORY.render(DeviceMemoryReading(None, None, None, None, None, None), GPU)) == []


def test_media() -> None:
    reading = MediaReading(encoder_utilization_ratio=0.25, decoder_utilization_ratio=0.0, encoder_sessions=2)
    assert shown(media.MEDIA.render(reading, GPU)) == [
        'gpu_encoder_utilization_ratio{gpu="3",uuid="GPU-3"} 0.25',
        'gpu_decoder_utilization_ratio{gpu="3",uuid="GPU-3"} 0.0',
        'gpu_encoder_sessions{gpu="3",uuid="GPU-3"} 2.0',
    ]
    assert shown(media.MEDIA.render(MediaReading(None, None, jpeg_utilization_ratio=0.5), GPU)) == [
        'gpu_jpeg_utilization_ratio{gpu="3",uuid="GPU-3"} 0.5'
    ]
    assert shown(media.MEDIA.render(MediaReading(None, None, None), GPU)) == []


def test_identity() -> None:
    reading = IdentityReading(
        name="NVIDIA H100 80GB HBM3",
        pci_bus_id="0000:65:00.0",
        minor_number="3",
        serial="1320000000001",
        architecture="hopper",
        compute_capability="9.0",
        vbios_version="96.00.74.00.01",
        board_part_number="692-2G520-0200-000",
    )
    assert shown(identity.render(reading, GPU)) == [
        (
            'gpu_info{gpu="3",uuid="GPU-3",name="NVIDIA H100 80GB HBM3",pci_bus_id="0000:65:00.0",'
            'minor_number="3",serial="1320000000001",architecture="hopper",compute_capability="9.0",'
            'vbios_version="96.00.74.00.01",board_part_number="692-2G520-0200-000"} 1.0'
        )
    ]


def test_a_gpu_that_says_nothing_of_itself_still_has_its_info() -> None:
    assert shown(identity.render(IdentityReading("", "", "", "", "", "", "", ""), GPU)) == [
        (
            'gpu_info{gpu="3",uuid="GPU-3",name="",pci_bus_id="",minor_number="",serial="",architecture="",'
            'compute_capability="",vbios_version="",board_part_number=""} 1.0'
        )
    ]


def test_modes() -> None:
    reading = ModesReading(persistence=True, mig=False, compute="exclusive_process")
    assert shown(modes.MODES.render(reading, GPU)) == [
        'gpu_persistence_mode{gpu="3",uuid="GPU-3"} 1.0',
        'gpu_mig_mode{gpu="3",uuid="GPU-3"} 0.0',
        'gpu_compute_mode_info{gpu="3",uuid="GPU-3",mode="exclusive_process"} 1.0',
    ]
    assert shown(modes.MODES.render(ModesReading(None, None, None), GPU)) == []
