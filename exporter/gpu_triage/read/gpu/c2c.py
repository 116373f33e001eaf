"""NVLink-C2C: links between a GPU and the Grace CPU of its module."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from gpu_triage.read.metrics.contract import GpuCollector
from gpu_triage.read.metrics.driver_counters import ERRORS, LinkCounter
from gpu_triage.read.metrics.metric import Tier, gpu_counter, gpu_gauge
from gpu_triage.read.metrics.rounds import GpuRound

COUNT_FIELD: Final = 170
STATUS_FIELD: Final = 171
BANDWIDTH_FIELD: Final = 172
"""NVML_FI_DEV_C2C_LINK_COUNT, and per link (as scope) _GET_STATUS (1 is active) and _GET_MAX_BW (MB/s)."""

ERROR_FIELDS: Final = {"crc": 231, "replay": 232, "replay_back_to_back": 233}
"""Label to NVML_FI_DEV_C2C_LINK_ERROR_{INTR,REPLAY,REPLAY_B2B}, with the link as scope."""

_MOST_LINKS: Final = 64
_MOST_MEGABYTES_PER_SECOND: Final = 10_000_000
_BYTES_PER_MEGABYTE: Final = 1_000_000

GPU_C2C_LINKS = gpu_gauge(
    "gpu_c2c_links",
    "NVLink-C2C links between the GPU and the CPU of its module. Absent on cards without any.",
    source="NVML field 170",
)
GPU_C2C_LINKS_UP = gpu_gauge(
    "gpu_c2c_links_up",
    "Those of gpu_c2c_links that are active. Absent if the driver reports no link state.",
    source="NVML field 171",
)
GPU_C2C_MAX_BYTES_PER_SECOND = gpu_gauge(
    "gpu_c2c_max_bytes_per_second",
    "What the active NVLink-C2C links of the GPU can carry together.",
    source="NVML field 172",
)
GPU_C2C_ERRORS_TOTAL = gpu_counter(
    "gpu_c2c_errors_total",
    "Errors of all NVLink-C2C links of the GPU by type: {type}. Never decreases while the exporter runs.",
    labels={"type": ERROR_FIELDS},
    source="NVML fields 231-233",
)


@dataclass(frozen=True, slots=True)
class C2cReading:
    """C2C links of one GPU; None or missing where not reported."""

    links: Annotated[int | None, GPU_C2C_LINKS]
    max_bytes_per_second: Annotated[float | None, GPU_C2C_MAX_BYTES_PER_SECOND]
    errors: Annotated[Mapping[str, float], GPU_C2C_ERRORS_TOTAL]
    links_up: Annotated[int | None, GPU_C2C_LINKS_UP]


_NONE: Final = C2cReading(None, None, {}, None)


class C2cReader:
    """Reads all links in two calls; continues their counters over resets."""

    def __init__(self) -> None:
        self._counters = {name: LinkCounter(ERRORS) for name in ERROR_FIELDS}

    def read(self, gpu: GpuRound) -> C2cReading:
        """Read the links (fields 170-172 and 231-233)."""
        inquiry = gpu.inquiry
        count = inquiry.within(inquiry.fields((COUNT_FIELD,)).get(COUNT_FIELD), 0, _MOST_LINKS)
        if not count:
            return _NONE
        links = range(int(count))
        fields = (STATUS_FIELD, BANDWIDTH_FIELD, *ERROR_FIELDS.values())
        values = inquiry.fields([(field, link) for field in fields for link in links])
        speeds = [
            inquiry.within(values[BANDWIDTH_FIELD, link], 0, _MOST_MEGABYTES_PER_SECOND)
            for link in links
            if (BANDWIDTH_FIELD, link) in values
        ]
        known = [speed for speed in speeds if speed is not None]
        states = [values[STATUS_FIELD, link] == 1 for link in links if (STATUS_FIELD, link) in values]
        counted = {
            name: self._counters[name].read_total(inquiry, field, values, gpu.at.monotonic)
            for name, field in ERROR_FIELDS.items()
        }
        return C2cReading(
            links=int(count),
            links_up=sum(states) if states else None,
            max_bytes_per_second=sum(known) * _BYTES_PER_MEGABYTE if known else None,
            errors={name: total for name, total in counted.items() if total is not None},
        )


C2C = GpuCollector("c2c", "links to the Grace CPU of the module", Tier.MEDIUM, lambda _config: C2cReader().read)
