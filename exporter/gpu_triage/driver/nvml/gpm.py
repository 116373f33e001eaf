"""GPM, the driver's SM performance counters: metrics between two samples. Only this module uses the GPM structs."""

import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

import pynvml

from gpu_triage.driver.nvml.inquiry import Inquiry
from gpu_triage.driver.nvml.nvml_errors import EMPTY, GPU_GONE, MALFORMED, UNSUPPORTED, name_of
from gpu_triage.errors import GpuUnavailable
from gpu_triage.machine import Clock, Moment

SM_ACTIVE: Final[int] = pynvml.NVML_GPM_METRIC_SM_UTIL
SM_OCCUPANCY: Final[int] = pynvml.NVML_GPM_METRIC_SM_OCCUPANCY
TENSOR_ACTIVE: Final[int] = pynvml.NVML_GPM_METRIC_ANY_TENSOR_UTIL
DRAM_ACTIVE: Final[int] = pynvml.NVML_GPM_METRIC_DRAM_BW_UTIL
FP64_ACTIVE: Final[int] = pynvml.NVML_GPM_METRIC_FP64_UTIL
FP32_ACTIVE: Final[int] = pynvml.NVML_GPM_METRIC_FP32_UTIL
FP16_ACTIVE: Final[int] = pynvml.NVML_GPM_METRIC_FP16_UTIL
"""Metric IDs (nvmlGpmMetricId_t) of percentages."""

PCIE_TRANSMITTED: Final[int] = pynvml.NVML_GPM_METRIC_PCIE_TX_PER_SEC
PCIE_RECEIVED: Final[int] = pynvml.NVML_GPM_METRIC_PCIE_RX_PER_SEC
"""Metric IDs of PCIe traffic in MiB/s, from the GPU's perspective."""

_TRAFFIC: Final = frozenset({PCIE_TRANSMITTED, PCIE_RECEIVED})
_BYTES_PER_MIB: Final = 1 << 20
_MOST_MIB_PER_SECOND: Final = 300_000
"""Sixteen lanes of PCIe generation 7 carry less than 256 GB/s per direction."""

NO_PERMISSION: Final = name_of(pynvml.NVML_ERROR_NO_PERMISSION)

SHORTEST_SPACING_SECONDS: Final = 0.11
"""The driver requires more than 100 ms between samples by its own clock, which differs from ours: add a 10% margin."""

_ABSENT: Final = UNSUPPORTED | EMPTY | {pynvml.NVML_ERROR_INVALID_ARGUMENT}
"""Codes of a single metric that are not failures; drivers that do not know the metric return "invalid argument"."""

_MOST_PERCENT: Final = 101
"""Slightly over 100 is possible: a rate is computed from two counters not read at exactly the same time."""


def _between(inquiry: Inquiry, metrics: tuple[int, ...], older: Any, newer: Any) -> Mapping[int, float]:
    """Compute metrics between two samples by ID: ratios 0-1, or bytes per second for traffic."""
    request: Any = pynvml.c_nvmlGpmMetricsGet_t()
    request.version = pynvml.NVML_GPM_METRICS_GET_VERSION
    request.numMetrics = len(metrics)
    request.sample1, request.sample2 = older, newer
    for metric, wanted in zip(request.metrics, metrics, strict=False):
        metric.metricId = wanted
        # An entry that the driver does not write must not look like an answer of 0.
        metric.nvmlReturn = pynvml.NVML_ERROR_NO_DATA
    if inquiry.ask_library("nvmlGpmMetricsGet", request, about=metrics) is None:
        return {}
    values: dict[int, float] = {}
    for metric, wanted in zip(request.metrics, metrics, strict=False):
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
    if metric in _TRAFFIC:
        traffic = inquiry.within(value, 0, _MOST_MIB_PER_SECOND)
        return None if traffic is None else traffic * _BYTES_PER_MIB
    percent = inquiry.within(value, 0, _MOST_PERCENT)
    return None if percent is None else min(percent / 100, 1.0)


class GpmMeter:
    """Activity of a GPU, or of one GPU instance, between rounds.

    Keeps the last sample until the next round in two alternating buffers, so it never waits for a second sample. The
    buffers belong to the NVML session: close the meter when the session ends. `spanned_seconds` is the time between the
    two samples of the last round; 0 without two samples, or if the previous result was repeated.
    """

    def __init__(self, metrics: tuple[int, ...], max_gap_seconds: float, instance: int | None = None) -> None:
        self._metrics = metrics
        self._max_gap_seconds = max_gap_seconds
        self._instance = instance
        self._library = pynvml.nvmlLib
        # Driver buffers (nvmlGpmSampleAlloc).
        self._older: Any | None = None
        self._spare: Any | None = None
        self._sampled_at = 0.0
        self._last: Mapping[int, float] = {}
        self.spanned_seconds = 0.0

    def read(self, inquiry: Inquiry, began: Moment, clock: Clock) -> Mapping[int, float]:
        """Averages by metric ID since the last sample (nvmlGpmSampleGet or nvmlGpmMigSampleGet, nvmlGpmMetricsGet).

        If called too soon after the last sample, keeps that sample and repeats its result, which is then at most
        SHORTEST_SPACING_SECONDS old. Empty in the first round, and after a gap longer than readings stay published,
        because an average over such a gap is not current.
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
            self._last = _between(inquiry, self._metrics, older, sample)
            self.spanned_seconds = self._sampled_at - since
        return self._last

    def close(self) -> None:
        """Free the samples (nvmlGpmSampleFree)."""
        for sample in (self._older, self._spare):
            # To another library that was loaded since, this address is invalid, or another buffer.
            if sample is not None and pynvml.nvmlLib is self._library:
                # If the library does not accept the buffer, nothing else can be done.
                with suppress(pynvml.NVMLError, *MALFORMED):
                    pynvml.nvmlGpmSampleFree(sample)
        self._older = self._spare = None
        self._last = {}

    def __del__(self) -> None:
        # A GPU that is forgotten has no further round that closes it. At the end of the process, NVML may be gone.
        if not sys.is_finalizing():
            self.close()

    def _take(self, inquiry: Inquiry) -> Any | None:
        if self._spare is None:
            self._spare = inquiry.ask_library("nvmlGpmSampleAlloc")
        if self._spare is None:
            return None
        if self._instance is None:
            taken = inquiry.ask("nvmlGpmSampleGet", self._spare)
        else:
            taken = inquiry.ask("nvmlGpmMigSampleGet", self._instance, self._spare)
        return None if taken is None else self._spare
