"""The host's latest readings as facts, and whether they are complete."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from gpu_triage.read.baseline.host_facts import GPU_SOURCES, HOST_SOURCES, GpuReadings, HostFacts, host_facts
from gpu_triage.read.gpu.nvlink import NVLINK, NvlinkReading
from gpu_triage.read.gpu.topology import TOPOLOGY, TopologyReading
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
        versions = self.driver.versions
        return host_facts(
            at,
            self.driver.count,
            None if versions is None else versions.driver,
            partial(self._reading, HOST),
            [
                GpuReadings(record.labels.uuid, record.device.pci_bus_id, partial(self._reading, record.key))
                for record in self.host_gpus
                if record.error is None and record.device is not None
            ],
        )

    def limitations(self, *, well: bool) -> str | None:
        """What a complete view lacks, or None; if `well`, also GPUs that don't respond and NVLinks that are down."""
        if self.driver.error is not None:
            return f"the driver, which is unavailable: {self.driver.error.reason}"
        if self.driver.count is None:
            return "the first answer of the driver"
        answering = [record for record in self.host_gpus if record.error is None and record.device is not None]
        if not well:
            return self._unseen(self.driver.count) or self._unread(answering)
        return (
            self._ill(self.driver.count)
            or self._unseen(self.driver.count)
            or self._unread(answering)
            or self._link_down(answering)
        )

    def _unseen(self, count: int) -> str | None:
        present = [record for record in self.host_gpus if record.absent_since is None]
        return f"GPUs: of {count}, {len(present)} are told apart" if len(present) < count else None

    def _ill(self, count: int) -> str | None:
        on_bus = self.driver.due_on_bus
        if not count:
            return "a GPU: the driver has none"
        if on_bus is not None and on_bus != count:
            return f"GPUs: the PCI bus has {on_bus} of NVIDIA, the driver {count}"
        for record in self.host_gpus:
            if record.error is not None:
                return f"GPU {record.labels.gpu}, which does not answer: {record.error}"
        return None

    def _unread(self, answering: Sequence[GpuRecord]) -> str | None:
        for collector in HOST_SOURCES:
            if collector.name in self.store.collectors and self._reading(HOST, collector.name) is None:
                return f"the reading of {collector.name}"
        for record in answering:
            for gpu_collector in GPU_SOURCES:
                if gpu_collector.name not in self.store.collectors:
                    continue
                reading = self._reading(record.key, gpu_collector.name)
                partial_view = isinstance(reading, TopologyReading) and len(reading.peers) < len(answering) - 1
                if reading is None or (gpu_collector is TOPOLOGY and partial_view):
                    return f"the reading of {gpu_collector.name} of GPU {record.labels.gpu}"
        return None

    def _link_down(self, answering: Sequence[GpuRecord]) -> str | None:
        for record in answering:
            reading = self._reading(record.key, NVLINK.name)
            for number, link in reading.links.items() if isinstance(reading, NvlinkReading) else ():
                if not link.is_up:
                    return f"NVLink {number} of GPU {record.labels.gpu}, which is down"
        return None

    def _reading(self, subject: str, collector: str) -> object | None:
        outcome = self.store.get(collector, subject)
        return None if outcome is None else outcome.reading
