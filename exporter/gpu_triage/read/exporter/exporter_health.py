"""Metrics about the exporter itself."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Final

from gpu_triage.machine import Moment
from gpu_triage.read.metrics.contract import GpuLabels, OwnSubject
from gpu_triage.read.metrics.metric import Sample, Tier, gpu_gauge, host_counter, host_gauge, host_info, no_sample
from gpu_triage.read.metrics.rendering import Each, samples

_STALE_INTERVALS: Final = 3
_STALE_GRACE_SECONDS: Final = 30.0
"""A collector is stale if its last success is older than this many intervals plus the grace period."""

DRIVER: Final = "driver"  # collector name used for the search for GPUs

GPU_EXPORTER_BUILD_INFO = host_info(
    "Version, source revision (if the build had it) and Python version.",
    labels=("version", "revision", "python_version"),
    source="the package",
    tier=Tier.SLOW,
)
GPU_EXPORTER_SIMULATED = host_gauge(
    "1 on a simulated host, where everything is made up; 0 on a real one.", source="--simulate", tier=Tier.SLOW
)
_collector_gauge = partial(host_gauge, labels=("collector",), source="the sampler")

GPU_EXPORTER_COLLECTOR_SUCCESS = _collector_gauge(
    "1 when the collector's last round succeeded for the host or any GPU, 0 when it failed completely, exceeds the "
    "deadline, or waits for a hung collector."
)
GPU_EXPORTER_COLLECTOR_DURATION_SECONDS = _collector_gauge(
    "Duration of the collector's last round, for its slowest GPU.", default_samples=no_sample
)
GPU_EXPORTER_COLLECTOR_INTERVAL_SECONDS = host_gauge(
    "How often the collector runs.",
    labels=("collector",),
    source="--sample.fast, --sample.medium, --sample.slow",
    tier=Tier.SLOW,
    default_samples=no_sample,
)
GPU_EXPORTER_COLLECTOR_LAST_SUCCESS_TIMESTAMP_SECONDS = _collector_gauge(
    "Unix time at which the collector last succeeded for the host or any GPU; absent before the first success.",
    default_samples=no_sample,
)
GPU_EXPORTER_COLLECTOR_STALE_SECONDS = _collector_gauge(
    "Time since the collector last succeeded for the host or any GPU, if more than three of its intervals plus 30 s. "
    "Absent otherwise, and before the first success."
)
GPU_EXPORTER_SLOWEST_COLLECTOR_SECONDS = host_gauge(
    "Duration of the last round of the slowest collector, for its slowest GPU.", source="the sampler"
)
GPU_EXPORTER_CALL_INFLIGHT_SECONDS = gpu_gauge(
    "Duration so far of a call that takes a second or more, by GPU (empty for the driver and the host), collector "
    "and NVML function (empty for files). Absent otherwise.",
    labels=("collector", "function"),
    source="the sampler",
)
GPU_EXPORTER_TIME_SECONDS = host_gauge(
    "Unix time by the host's clock when this page was rendered, at most 3 s before the scrape. All timestamps on the "
    "page use this clock: to get an age, subtract them from this metric, not from time().",
    source="the host's clock",
)
GPU_EXPORTER_LAST_PUBLICATION_TIMESTAMP_SECONDS = host_gauge(
    "Unix time at which the sampler last published. If it does not advance, the sampler has stopped or hangs.",
    source="the sampler",
)
GPU_EXPORTER_ERRORS_TOTAL = host_counter(
    "Failed reads by collector and error since the exporter started. Features that the hardware does not support are "
    "not errors.",
    labels=("collector", "error"),
    source="the sampler",
)
GPU_EXPORTER_SCRAPES_TOTAL = host_counter("Scrapes answered since the exporter started.", source="the web server")
GPU_EXPORTER_GPUS_RELEASED = host_gauge(
    "1 while the exporter has released all GPUs on request and holds no handle, 0 otherwise.", source="the sampler"
)
GPU_EXPORTER_WEB_CONFIG_RELOAD_SUCCESS = host_gauge(
    "1 while the loaded TLS settings, passwords and headers match the web configuration file, 0 if it became invalid "
    "and the previous ones stay in force. Absent without such a file.",
    source="--web.config.file",
)
GPU_EXPORTER_WEB_CONFIG_LAST_RELOAD_SUCCESS_TIMESTAMP_SECONDS = host_gauge(
    "Unix time at which the TLS settings and passwords in force were loaded. Absent without a web configuration file.",
    source="--web.config.file",
)
GPU_EXPORTER_JUDGE_SETTINGS_RELOAD_SUCCESS = host_gauge(
    "1 while the waits, holds and thresholds in force are those of the configuration file when last read, 0 if it "
    "was invalid and the previous ones stay in force. Absent without such a file.",
    source="--config.file",
)
GPU_EXPORTER_JUDGE_SETTINGS_LAST_RELOAD_SUCCESS_TIMESTAMP_SECONDS = host_gauge(
    "Unix time at which the waits, holds and thresholds in force were read. Absent without a configuration file.",
    source="--config.file",
)
GPU_EXPORTER_STATE_DIRECTORY_IN_USE = host_gauge(
    "1 while another exporter writes to --state.directory, so that this one saves nothing there, 0 while this one "
    "does. Absent without a state directory.",
    source="--state.directory",
)
GPU_EXPORTER_STATE_SAVED = host_gauge(
    "1 while finding states and incident history are saved to --state.directory, 0 while they are not (none, in use, "
    "or not writable).",
    source="--state.directory",
)


@dataclass(frozen=True, slots=True)
class CollectorHealth:
    """Health of one collector; None before its first round or first success."""

    name: str
    success: Annotated[bool | None, GPU_EXPORTER_COLLECTOR_SUCCESS]
    duration_seconds: Annotated[float | None, GPU_EXPORTER_COLLECTOR_DURATION_SECONDS]
    interval_seconds: Annotated[float, GPU_EXPORTER_COLLECTOR_INTERVAL_SECONDS]
    last_success_at: Moment | None


@dataclass(frozen=True, slots=True)
class CallInFlight:
    """A slow call of a collector that is still in progress; with HOST_LABELS if it concerns no particular GPU."""

    gpu: GpuLabels
    collector: str
    function: str
    seconds: Annotated[float, GPU_EXPORTER_CALL_INFLIGHT_SECONDS]


@dataclass(frozen=True, slots=True)
class WebConfigHealth:
    success: Annotated[bool, GPU_EXPORTER_WEB_CONFIG_RELOAD_SUCCESS]
    loaded_at: Annotated[float, GPU_EXPORTER_WEB_CONFIG_LAST_RELOAD_SUCCESS_TIMESTAMP_SECONDS]


@dataclass(frozen=True, slots=True)
class JudgeSettingsHealth:
    success: Annotated[bool, GPU_EXPORTER_JUDGE_SETTINGS_RELOAD_SUCCESS]
    loaded_at: Annotated[float, GPU_EXPORTER_JUDGE_SETTINGS_LAST_RELOAD_SUCCESS_TIMESTAMP_SECONDS]


@dataclass(frozen=True, slots=True)
class ExporterReading:
    """The state of this process when it published this; None for files and directories that it does not have."""

    version: str
    revision: str
    python_version: str
    constants: tuple[Sample, ...]  # what is published of the host and never changes
    collectors: tuple[CollectorHealth, ...]
    errors: Annotated[Mapping[tuple[str, str], int], GPU_EXPORTER_ERRORS_TOTAL]
    scrapes: Annotated[int, GPU_EXPORTER_SCRAPES_TOTAL]
    gpus_released: Annotated[bool, GPU_EXPORTER_GPUS_RELEASED]
    published_at: Moment
    calls: tuple[CallInFlight, ...] = ()
    web_config: Annotated[WebConfigHealth | None, Each()] = None
    judge_settings: Annotated[JudgeSettingsHealth | None, Each()] = None
    state_in_use: Annotated[bool | None, GPU_EXPORTER_STATE_DIRECTORY_IN_USE] = None
    state_saved: Annotated[bool | None, GPU_EXPORTER_STATE_SAVED] = None


def render(reading: ExporterReading) -> Iterator[Sample]:
    yield GPU_EXPORTER_BUILD_INFO.sample(1, reading.version, reading.revision, reading.python_version)
    yield from reading.constants
    for collector in reading.collectors:
        yield from samples(collector, (collector.name,))
        if collector.last_success_at is not None:
            at = collector.last_success_at.wall
            yield GPU_EXPORTER_COLLECTOR_LAST_SUCCESS_TIMESTAMP_SECONDS.sample(at, collector.name)
        stale_seconds = _stale_seconds(collector, reading)
        if stale_seconds is not None:
            yield GPU_EXPORTER_COLLECTOR_STALE_SECONDS.sample(stale_seconds, collector.name)
    durations = [c.duration_seconds for c in reading.collectors if c.duration_seconds is not None]
    if durations:
        yield GPU_EXPORTER_SLOWEST_COLLECTOR_SECONDS.sample(max(durations))
    yield GPU_EXPORTER_LAST_PUBLICATION_TIMESTAMP_SECONDS.sample(reading.published_at.wall)
    for call in reading.calls:
        yield from samples(call, (*call.gpu, call.collector, call.function))
    yield from samples(reading)


def _stale_seconds(collector: CollectorHealth, reading: ExporterReading) -> float | None:
    """Age of a collector's last success if it is overdue, else None."""
    if collector.last_success_at is None or reading.gpus_released:
        return None
    # Not by the wall clock: setting it would make collectors look overdue, or hide that they are.
    age_seconds = reading.published_at.monotonic - collector.last_success_at.monotonic
    due_seconds = _STALE_INTERVALS * collector.interval_seconds + _STALE_GRACE_SECONDS
    return age_seconds if age_seconds > due_seconds else None


EXPORTER = OwnSubject("the exporter itself", Tier.FAST, render)
