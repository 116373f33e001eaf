"""The exporter's word about itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from gpu_triage import catalogue
from gpu_triage.catalogue import Sample
from gpu_triage.collectors.rendering import present

NAME = "exporter"
METRICS = (
    catalogue.EXPORTER_BUILD_INFO,
    catalogue.EXPORTER_SIMULATED,
    catalogue.EXPORTER_COLLECTOR_SUCCESS,
    catalogue.EXPORTER_COLLECTOR_DURATION,
    catalogue.EXPORTER_COLLECTOR_INTERVAL,
    catalogue.EXPORTER_COLLECTOR_LAST_SUCCESS,
    catalogue.EXPORTER_ERRORS,
    catalogue.EXPORTER_SCRAPES,
    catalogue.EXPORTER_GPUS_RELEASED,
    catalogue.EXPORTER_WEB_CONFIG_SUCCESS,
    catalogue.EXPORTER_WEB_CONFIG_LAST_SUCCESS,
)


@dataclass(frozen=True, slots=True)
class CollectorHealth:
    """How one collector fares.

    Attributes:
        name: the collector.
        interval_seconds: how often it runs.
        success: whether its last round succeeded for the host or any GPU; None before the first.
        duration_seconds: of its last round, for the slowest GPU; None before the first.
        last_success_at: Unix seconds; None before the first success.
    """

    name: str
    interval_seconds: float
    success: bool | None
    duration_seconds: float | None
    last_success_at: float | None


@dataclass(frozen=True, slots=True)
class WebConfigHealth:
    """How the last load of the web configuration went.

    Attributes:
        success: whether what the files say now is what guards the server.
        loaded_at: Unix seconds at which what guards it was loaded.
    """

    success: bool
    loaded_at: float


@dataclass(frozen=True, slots=True)
class ExporterReading:
    """The state of this process.

    Attributes:
        version: of the package.
        revision: of its source; "" where unknown.
        python_version: of the interpreter.
        simulated: whether the host is made up.
        collectors: those that run here.
        errors: failed questions by collector and error.
        scrapes: answered so far.
        gpus_released: whether all GPU handles were given back on request.
        web_config: how TLS and passwords were loaded; None where there is no file of them.
    """

    version: str
    revision: str
    python_version: str
    simulated: bool
    collectors: tuple[CollectorHealth, ...]
    errors: Mapping[tuple[str, str], int]
    scrapes: int
    gpus_released: bool
    web_config: WebConfigHealth | None = None


def render(reading: ExporterReading) -> Iterator[Sample]:
    """Samples of this process."""
    yield catalogue.EXPORTER_BUILD_INFO.sample(1, reading.version, reading.revision, reading.python_version)
    yield catalogue.EXPORTER_SIMULATED.sample(reading.simulated)
    for collector in reading.collectors:
        yield from present(catalogue.EXPORTER_COLLECTOR_SUCCESS, collector.success, collector.name)
        yield from present(catalogue.EXPORTER_COLLECTOR_DURATION, collector.duration_seconds, collector.name)
        yield catalogue.EXPORTER_COLLECTOR_INTERVAL.sample(collector.interval_seconds, collector.name)
        yield from present(catalogue.EXPORTER_COLLECTOR_LAST_SUCCESS, collector.last_success_at, collector.name)
    for (collector_name, error), count in sorted(reading.errors.items()):
        yield catalogue.EXPORTER_ERRORS.sample(count, collector_name, error)
    yield catalogue.EXPORTER_SCRAPES.sample(reading.scrapes)
    yield catalogue.EXPORTER_GPUS_RELEASED.sample(reading.gpus_released)
    if reading.web_config is not None:
        yield catalogue.EXPORTER_WEB_CONFIG_SUCCESS.sample(reading.web_config.success)
        yield catalogue.EXPORTER_WEB_CONFIG_LAST_SUCCESS.sample(reading.web_config.loaded_at)
