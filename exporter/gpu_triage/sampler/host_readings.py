"""The host's latest readings as facts, and whether they are complete."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from gpu_triage.driver.nvml.session import Device
from gpu_triage.read.baseline.host_facts import (
    GPU_SOURCES,
    HOST_SOURCES,
    GpuReadings,
    HostFacts,
    HostValues,
    host_facts,
)
from gpu_triage.read.gpu.nvlink import NVLINK, NvlinkReading
from gpu_triage.read.gpu.topology import TopologyReading
from gpu_triage.read.host.platform import PLATFORM
from gpu_triage.read.metrics.contract import AnyCollector
from gpu_triage.sampler.driver import DriverWatch
from gpu_triage.sampler.host_gpus import GpuRecord, HostGpus
from gpu_triage.sampler.outcomes import HOST, OutcomeStore


@dataclass(frozen=True, slots=True)
class HostReadings:
    """The facts of the host that the sampler has read. Only the sampler's thread calls it."""

    host_gpus: HostGpus  # the GPUs
    driver: DriverWatch  # the driver
    store: OutcomeStore  # the latest outcomes, with their readings

    def facts(self, at: float) -> HostFacts:
        """Facts from the latest readings; `at` is now, in Unix seconds."""
        versions, platform = self.driver.versions, self.store.reading(PLATFORM)
        gpus = [
            GpuReadings(record.labels.uuid, device.pci_bus_id, partial(self._reading, record.key))
            for record, device in self._answering
        ]
        iommu_active = None if platform is None else platform.iommu_active
        shared = HostValues(self.driver.count, None if versions is None else versions.driver, iommu_active)
        return host_facts(at, shared, gpus)

    def limitations(self, *, well: bool) -> str | None:
        """What a complete view lacks, or None; if `well`, also GPUs that don't respond and NVLinks that are down."""
        return next(self._limitations(well=well), None)

    def _limitations(self, *, well: bool) -> Iterator[str]:
        if self.driver.error is not None:
            yield f"the driver, which is unavailable: {self.driver.error.reason}"
        if (count := self.driver.count) is None:
            yield "the first answer of the driver"
            return
        if well:
            yield from self._faults(count)
        present = sum(record.absent_since is None for record in self.host_gpus)
        if present < count:
            yield f"GPUs: of {count}, {present} are told apart"
        yield from self._unread()
        for record, _ in self._answering if well else ():
            reading = self._reading(record.key, NVLINK.name)
            for number, link in reading.links.items() if isinstance(reading, NvlinkReading) else ():
                if not link.is_up:
                    yield f"NVLink {number} of GPU {record.labels.gpu}, which is down"

    def _faults(self, count: int) -> Iterator[str]:
        on_bus = self.driver.due_on_bus
        if not count:
            yield "a GPU: the driver has none"
        if on_bus is not None and on_bus != count:
            yield f"GPUs: the PCI bus has {on_bus} of NVIDIA, the driver {count}"
        for record in self.host_gpus:
            if record.error is not None:
                yield f"GPU {record.labels.gpu}, which does not answer: {record.error}"

    def _unread(self) -> Iterator[str]:
        for name in self._read(HOST_SOURCES):
            if self._reading(HOST, name) is None:
                yield f"the reading of {name}"
        for record, _ in self._answering:
            for name in self._read(GPU_SOURCES):
                reading = self._reading(record.key, name)
                partial_view = isinstance(reading, TopologyReading) and len(reading.peers) < len(self._answering) - 1
                if reading is None or partial_view:
                    yield f"the reading of {name} of GPU {record.labels.gpu}"

    @property
    def _answering(self) -> Sequence[tuple[GpuRecord, Device]]:
        return [(each, each.device) for each in self.host_gpus if each.error is None and each.device is not None]

    def _read(self, collectors: Iterable[AnyCollector]) -> Iterator[str]:
        return (each.name for each in collectors if each.name in self.store.collectors)

    def _reading(self, subject: str, collector: str) -> object | None:
        outcome = self.store.get(collector, subject)
        return None if outcome is None else outcome.reading
