"""The size of a page of dcgm-exporter, which cannot run here: its default set, as its documentation lists it."""

from __future__ import annotations

import gzip
from typing import Final

from tests.bench.scrape import PageSize

# NVIDIA/dcgm-exporter, etc/default-counters.csv (4.x), on a GPU that has them all.
FIELDS: Final = {
    "DCGM_FI_DEV_SM_CLOCK": "gauge",
    "DCGM_FI_DEV_MEM_CLOCK": "gauge",
    "DCGM_FI_DEV_MEMORY_TEMP": "gauge",
    "DCGM_FI_DEV_GPU_TEMP": "gauge",
    "DCGM_FI_DEV_POWER_USAGE": "gauge",
    "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION": "counter",
    "DCGM_FI_DEV_PCIE_REPLAY_COUNTER": "counter",
    "DCGM_FI_DEV_GPU_UTIL": "gauge",
    "DCGM_FI_DEV_MEM_COPY_UTIL": "gauge",
    "DCGM_FI_DEV_ENC_UTIL": "gauge",
    "DCGM_FI_DEV_DEC_UTIL": "gauge",
    "DCGM_FI_DEV_XID_ERRORS": "gauge",
    "DCGM_FI_DEV_FB_FREE": "gauge",
    "DCGM_FI_DEV_FB_USED": "gauge",
    "DCGM_FI_DEV_FB_RESERVED": "gauge",
    "DCGM_FI_DEV_UNCORRECTABLE_REMAPPED_ROWS": "counter",
    "DCGM_FI_DEV_CORRECTABLE_REMAPPED_ROWS": "counter",
    "DCGM_FI_DEV_ROW_REMAP_FAILURE": "gauge",
    "DCGM_FI_DEV_NVLINK_BANDWIDTH_TOTAL": "counter",
    "DCGM_FI_DEV_VGPU_LICENSE_STATUS": "gauge",
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": "gauge",
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": "gauge",
    "DCGM_FI_PROF_DRAM_ACTIVE": "gauge",
    "DCGM_FI_PROF_PCIE_TX_BYTES": "gauge",
    "DCGM_FI_PROF_PCIE_RX_BYTES": "gauge",
}
_HELP_LETTERS: Final = 48
"""A help text of the usual length."""


def default_page(gpus: int) -> PageSize:
    """Series and bytes of a page for so many GPUs; values are made up, names and labels are not."""
    lines = []
    for number, (name, kind) in enumerate(FIELDS.items()):
        lines += [f"# HELP {name} {'x' * _HELP_LETTERS}", f"# TYPE {name} {kind}"]
        lines += [f"{name}{{{_labels(gpu)}}} {1000 + 37 * number + gpu}" for gpu in range(gpus)]
    page = "\n".join(lines).encode()
    return PageSize(len(FIELDS) * gpus, 0, len(page), len(gzip.compress(page, 1)))


def _labels(gpu: int) -> str:
    uuid = f"GPU-{gpu:08x}-1111-2222-3333-444444444444"
    return (
        f'gpu="{gpu}",UUID="{uuid}",pci_bus_id="00000000:{16 + gpu:02X}:00.0",device="nvidia{gpu}",'
        'modelName="NVIDIA H100 80GB HBM3",Hostname="gpu-rack7-01",DCGM_FI_DRIVER_VERSION="570.172.08"'
    )
