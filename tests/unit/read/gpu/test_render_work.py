from __future__ import annotations

from tests.nvml_bench import shown

from gpu_triage.read.gpu import identity
from gpu_triage.read.gpu.identity import IdentityReading
from gpu_triage.read.metrics.contract import GpuLabels

GPU = GpuLabels("3", "GPU-3")


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
