"""GPM, the driver's performance counters inside the SMs: two samples, and what happened between them.

The structs of GPM are known here alone.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from ctypes import sizeof
from typing import Any, Final

import pynvml

from gpu_triage.errors import GpuUnavailable
from gpu_triage.machine import Clock, Moment
from gpu_triage.nvml.errors import EMPTY, GPU_GONE, MALFORMED, UNSUPPORTED, name_of
from gpu_triage.nvml.inquiry import Inquiry
from gpu_triage.nvml.plain import plain

SM_ACTIVE: Final[int] = pynvml.NVML_GPM_METRIC_SM_UTIL
SM_OCCUPANCY: Final[int] = pynvml.NVML_GPM_METRIC_SM_OCCUPANCY
TENSOR_ACTIVE: Final[int] = pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL
DRAM_ACTIVE: Final[int] = pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL
FP64_ACTIVE: Final[int] = pynvml.NVML_GPM_METRIC_FP64_UTIL
FP32_ACTIVE: Final[int] = pynvml.NVML_GPM_METRIC_FP32_UTIL
FP16_ACTIVE: Final[int] = pynvml.NVML_GPM_METRIC_FP16_UTIL
"""Metric ids (nvmlGpmMetricId_t) of percentages."""

PCIE_TRANSMITTED: Final[int] = pynvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC
PCIE_RECEIVED: Final[int] = pynvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC
"""Metric ids of traffic in MiB/s, as the GPU sees it."""

_TRAFFIC: Final = frozenset({PCIE_TRANSMITTED, PCIE_RECEIVED})
_BYTES_PER_MIB: Final = 1 << 20
_MOST_MIB_PER_SECOND: Final = 300_000
"""Sixteen lanes of PCIe generation 7 carry less than 256 GB/s each way."""

NO_PERMISSION: Final = name_of(pynvml.NVML_ERROR_NO_PERMISSION)

SHORTEST_SPACING_SECONDS: Final = 0.11
"""The driver wants samples more than 100 ms apart by its own clock, which is not ours: a tenth for good measure."""

_ABSENT: Final = UNSUPPORTED | EMPTY | {pynvml.NVML_ERROR_INVALID_ARGUMENT}
"""What one metric may answer without having failed; a driver older than the metric calls its id an invalid argument."""

_MOST_PERCENT: Final = 101
"""A full GPU may read a little over 100: a rate is two counters, not read at the very same instant."""


_Metric: Final = plain(pynvml.c_nvmlGpmMetric_t)


class GpmMetrics:
    """The struct that asks for some metrics: 19 kB, so it is made once and used again. Not for several threads."""

    __slots__ = ("_entries", "_ids", "_request")

    def __init__(self, *ids: int) -> None:
        self._ids = ids
        self._request: Any = pynvml.c_nvmlGpmMetricsGet_t()
        first, size = pynvml.c_nvmlGpmMetricsGet_t.metrics.offset, sizeof(_Metric)
        # The same memory as the request's own entries.
        self._entries = [_Metric.from_buffer(self._request, first + size * place) for place in range(len(ids))]

    def between(self, inquiry: Inquiry, older: Any, newer: Any) -> Mapping[int, float]:
        """Metrics between two samples (nvmlGpmMetricsGet) by id: 0-1, and traffic in bytes per second.

        What the GPU lacks or cannot tell is left out.
        """
        request = self._request
        request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
        request.numMetrics = len(self._ids)
        request.sample1, request.sample2 = older, newer
        for metric, wanted in zip(self._entries, self._ids, strict=True):
            metric.metricId = wanted
            # An entry that the driver leaves as it was must not pass for the last round's answer.
            metric.nvmlReturn = pynvml.NVML_ERROR_NO_DATA
        if inquiry.ask_library("nvmlGpmMetricsGet", request, about=self._ids) is None:
            return {}
        values: dict[int, float] = {}
        for metric, wanted in zip(self._entries, self._ids, strict=True):
            code = metric.nvmlReturn
            if code == pynvml.NVML_SUCCESS:
                value = _in_base_units(inquiry, wanted, metric.value)
                if value is not None:
                    values[wanted] = value
            elif code in GPU_GONE:
                raise GpuUnavailable(name_of(code), f"GPM metric {wanted}")
            elif code not in _ABSENT:
                inquiry.failures.append(name_of(code))
        return values


def _in_base_units(inquiry: Inquiry, metric: int, value: float) -> float | None:
    """A share of 1, or bytes per second; None for what cannot be."""
    if metric in _TRAFFIC:
        traffic = inquiry.within(value, 0, _MOST_MIB_PER_SECOND)
        return None if traffic is None else traffic * _BYTES_PER_MIB
    percent = inquiry.within(value, 0, _MOST_PERCENT)
    return None if percent is None else min(percent / 100, 1.0)


class GpmMeter:
    """Activity of a GPU, or of one of its GPU instances, from one round to the next.

    The last sample stays until the next round, in one of two buffers that are filled in turn; nothing ever waits
    for a second sample. The buffers belong to the NVML session: close the meter when that ends.

    Attributes:
        spanned_seconds: between the two samples of the last round; 0 if it had no two, or repeated what was told.
    """

    def __init__(self, metrics: GpmMetrics, max_gap_seconds: float, instance: int | None = None) -> None:
        self._metrics = metrics
        self._max_gap_seconds = max_gap_seconds
        self._instance = instance
        self._older: _Sample | None = None
        self._spare: _Sample | None = None
        self._sampled_at = 0.0
        self._last: Mapping[int, float] = {}
        self.spanned_seconds = 0.0

    def read(self, inquiry: Inquiry, began: Moment, clock: Clock) -> Mapping[int, float]:
        """Averages by metric id since the last sample (nvmlGpmSampleGet or nvmlGpmMigSampleGet, nvmlGpmMetricsGet).

        A round that comes too soon leaves the last sample where it is and repeats what that one told, which is
        then no older than the shortest spacing. Empty at first, and after a gap longer than a reading stays
        published: its average is not news of now.

        Args:
            inquiry: asks this GPU's driver.
            began: when the round began.
            clock: tells when the sample was taken.
        """
        at = began.monotonic
        self.spanned_seconds = 0.0
        if self._older is not None and at - self._sampled_at < SHORTEST_SPACING_SECONDS:
            return self._last
        self._last = {}
        sample = self._take(inquiry)
        if sample is None:
            self.close()
            return {}
        since, older = self._sampled_at, self._older
        self._older, self._spare = sample, older
        self._sampled_at = clock.now().monotonic
        if older is not None and self._sampled_at - since <= self._max_gap_seconds:
            self._last = self._metrics.between(inquiry, older.pointer, sample.pointer)
            self.spanned_seconds = self._sampled_at - since
        return self._last

    def close(self) -> None:
        """Give the buffers back and forget what was sampled."""
        for sample in (self._older, self._spare):
            if sample is not None:
                sample.free()
        self._older = self._spare = None
        self._last = {}

    def _take(self, inquiry: Inquiry) -> _Sample | None:
        if self._spare is None:
            pointer = inquiry.ask_library("nvmlGpmSampleAlloc")
            if pointer is None:
                return None
            self._spare = _Sample(pointer)
        if self._instance is None:
            taken = inquiry.ask("nvmlGpmSampleGet", self._spare.pointer)
        else:
            taken = inquiry.ask("nvmlGpmMigSampleGet", self._instance, self._spare.pointer)
        return None if taken is None else self._spare


class _Sample:
    """A buffer of the driver's (nvmlGpmSampleAlloc), freed at the latest when nothing refers to it any more."""

    __slots__ = ("__weakref__", "free", "pointer")

    def __init__(self, pointer: Any) -> None:
        self.pointer = pointer
        self.free = weakref.finalize(self, _free, pointer, pynvml.nvmlLib)
        # At the end of the process the memory goes anyway, and NVML may be gone before.
        self.free.atexit = False


def _free(pointer: Any, library: object) -> None:
    if pynvml.nvmlLib is not library:
        # Another library has taken its place, to which this address is nothing, or somebody else's buffer.
        return
    try:
        pynvml.nvmlGpmSampleFree(pointer)
    except (pynvml.NVMLError, *MALFORMED):
        # There is nothing to be done about a buffer that the library does not take back.
        return
