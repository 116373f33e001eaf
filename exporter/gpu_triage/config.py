"""The one configuration every part of the program is handed.

Where its values come from (flag, environment variable, file) and what they may be is `gpu_triage.options`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

HOST_GROUP = "host"
"""The switch that covers every collector whose name starts with ``host_``."""


@dataclass(frozen=True, slots=True)
class Config:
    """What the operator asked for, checked; the defaults are the program's.

    Attributes:
        web_listen_addresses: ``host:port``, ``:port`` (all interfaces), ``[v6]:port`` or ``unix:/path``; at least
            one, no two equal.
        web_systemd_socket: whether to serve on sockets inherited from systemd instead.
        web_config_file: path of the file with TLS, passwords and headers; None serves plain HTTP to everyone.
        web_telemetry_path: URL path of the metrics; starts with a slash, is never ``/`` or below ``/-/``.
        web_max_requests: requests answered at the same time, 1 to 1000.
        web_enable_lifecycle: whether GPUs can be released and acquired over HTTP.
        path_procfs: where procfs is mounted.
        path_sysfs: where sysfs is mounted.
        path_kmsg: the kernel log device.
        sample_fast_seconds: interval of the fast tier, 0.1 to 60.
        sample_medium_seconds: interval of the medium tier, never shorter than the fast one.
        sample_slow_seconds: interval of the slow tier, never shorter than the medium one.
        sample_deadline_seconds: one GPU's round must answer within this, or the GPU is published as stalled.
        stale_after: intervals after which a value that was not renewed is withdrawn, 2 to 100.
        expect_gpu_count: GPUs this host should have; None where nothing is expected.
        expect_pcie_generation: PCIe generation each link should reach, 1 to 7; None as above.
        expect_pcie_width: PCIe lanes each link should have; None as above.
        expect_p2p: whether GPUs should reach each other directly; None as above.
        baseline_file: what the host was like when it was well, to be compared with; None compares with none.
        baseline_from_host: whether to learn the baseline from this host, once, where there is none in the state
            directory.
        state_directory: where the exporter may keep what must outlive it; None keeps nothing.
        process_max: most processes published a GPU, 0 to 1024; 0 publishes none.
        collectors: explicit choices only, by collector name or the group name ``host``;
            ask `collector_enabled`.
        collector_textfile_directory: where jobs write ``*.prom`` files to republish; None republishes none.
        kubernetes_pod_resources_socket: the kubelet's socket to learn pods' names from, absolute; None asks no kubelet.
        log_level: ``debug``, ``info``, ``warning`` or ``error``.
        log_format: ``logfmt`` or ``json``.
        replay: the recording to run instead of the real host; None on the real host.
        simulate: the scenario to run instead of the real host; None on the real host.
        simulate_pace: how many times faster its events follow each other.
    """

    web_listen_addresses: tuple[str, ...] = (":9836",)
    web_systemd_socket: bool = False
    web_config_file: str | None = None
    web_telemetry_path: str = "/metrics"
    web_max_requests: int = 40
    web_enable_lifecycle: bool = False
    path_procfs: Path = Path("/proc")
    path_sysfs: Path = Path("/sys")
    path_kmsg: Path = Path("/dev/kmsg")
    sample_fast_seconds: float = 1.0
    sample_medium_seconds: float = 5.0
    sample_slow_seconds: float = 60.0
    sample_deadline_seconds: float = 5.0
    stale_after: int = 3
    expect_gpu_count: int | None = None
    expect_pcie_generation: int | None = None
    expect_pcie_width: int | None = None
    expect_p2p: bool | None = None
    baseline_file: Path | None = None
    baseline_from_host: bool = False
    state_directory: Path | None = None
    process_max: int = 32
    collectors: Mapping[str, bool] = field(default_factory=dict, hash=False)
    collector_textfile_directory: Path | None = None
    kubernetes_pod_resources_socket: Path | None = None
    log_level: str = "info"
    log_format: str = "logfmt"
    replay: Path | None = None
    simulate: str | None = None
    simulate_pace: int = 1

    def __post_init__(self) -> None:
        # A copy behind a proxy: whoever passed the mapping in cannot change it later.
        object.__setattr__(self, "collectors", MappingProxyType(dict(self.collectors)))


def collector_enabled(config: Config, name: str, default: bool) -> bool:  # noqa: FBT001 - a fact, not a mode
    """Whether the collector runs: its own switch, else its group's, else its default."""
    own = config.collectors.get(name)
    if own is not None:
        return own
    if name.startswith(f"{HOST_GROUP}_"):
        return config.collectors.get(HOST_GROUP, default)
    return default
