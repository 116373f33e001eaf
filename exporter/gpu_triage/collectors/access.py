"""Which features lack a right on this host."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from gpu_triage import catalogue
from gpu_triage.catalogue import Sample, Tier
from gpu_triage.collectors import xid
from gpu_triage.collectors.contract import HostCollector, runs
from gpu_triage.collectors.host_network import HOST_NETWORK
from gpu_triage.collectors.host_nfs import HOST_NFS
from gpu_triage.collectors.pod_names import POD_NAMES
from gpu_triage.collectors.process_memory_locality import PROCESS_MEMORY_LOCALITY
from gpu_triage.collectors.processes import PROCESSES
from gpu_triage.collectors.textfile import TEXTFILE
from gpu_triage.config import Config, collector_enabled
from gpu_triage.hardware.access import AccessReader, AccessReading, Wanted

_OF_COLLECTORS: Final = (PROCESSES, PROCESS_MEMORY_LOCALITY, HOST_NETWORK, HOST_NFS, TEXTFILE, POD_NAMES)


def wanted(config: Config) -> Wanted:
    """The features that this configuration runs."""
    features = {"pci_bus", *(collector.name for collector in _OF_COLLECTORS if runs(collector, config))}
    if collector_enabled(config, xid.NAME, default=True):
        features.add("kernel_log")
    if config.state_directory is not None:
        features.add("state_directory")
    return Wanted(
        frozenset(features),
        config.collector_textfile_directory,
        config.kubernetes_pod_resources_socket,
        config.state_directory,
    )


def render(reading: AccessReading) -> Iterator[Sample]:
    """Samples of one reading."""
    for lack in reading.lacks:
        yield catalogue.EXPORTER_DEGRADED_INFO.sample(1, lack.feature, lack.reason)


ACCESS = HostCollector(
    name="access",
    about="rights that features lack",
    tier=Tier.SLOW,
    metrics=(catalogue.EXPORTER_DEGRADED_INFO,),
    reader=lambda config: AccessReader(wanted(config)).read,
    render=render,
)
