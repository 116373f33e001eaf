"""The configuration of every part of the program; `gpu_triage.options` reads and validates its sources."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from types import MappingProxyType

HOST_GROUP = "host"
"""Switch for all collectors with names starting with ``host_``."""


@dataclass(frozen=True, slots=True)
class Setting:
    """The unparsed texts of an option (several only if it is repeatable), and where it was set: ``config.yml: key``."""

    texts: tuple[str, ...]
    source: str


class Origin(IntEnum):
    """Source of a setting; a higher value takes precedence."""

    SCENARIO = 0
    FILE = 1
    VARIABLE = 2
    FLAG = 3


@dataclass(frozen=True, slots=True)
class JudgeOption:
    """An unparsed setting of the judge: ``thermal.hw``, ``wait`` and ``5m``; validated where findings are known."""

    code: str  # of the finding
    name: str  # ``wait``, ``hold``, or the name of a threshold
    text: str  # the value
    origin: Origin = field(default=Origin.FLAG, compare=False)
    place: str = field(default="--judge", compare=False)  # where it was set, for messages: ``config.yml: judge``


@dataclass(frozen=True, slots=True)
class LineRate:
    """Line rate of the devices that match a pattern, in each direction."""

    device: str
    bytes_per_second: int


RULES, DEFAULT, FULL = PROFILES = ("rules", "default", "full")
"""Valid values of ``--metrics.profile``."""

INDEX, MINOR = GPU_NUMBERS = ("index", "minor")
"""Valid values of ``--slurm.gpu-numbers``."""


@dataclass(frozen=True, slots=True)
class Config:
    """The user's settings, validated, with the program's defaults for the rest.

    The range of each field is in `gpu_triage.options.option_table`, its meaning in `meanings.json`. None turns a
    feature off; with `replay` and `simulate` None, the host is the real one.
    """

    web_listen_addresses: tuple[str, ...] = (":9836",)
    web_systemd_socket: bool = False
    web_allowed_hosts: tuple[str, ...] = ()
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
    flight_recorder_directory: Path | None = None
    judge: tuple[JudgeOption, ...] = ()  # if a setting is repeated, the last one wins
    metrics_profile: str = "default"
    metrics_include: tuple[str, ...] = ()
    metrics_exclude: tuple[str, ...] = ()
    process_max: int = 32
    network_device_include: tuple[str, ...] = ()
    network_device_exclude: tuple[str, ...] = ()
    network_line_rate: tuple[LineRate, ...] = ()
    nccl_ras_address: tuple[str, ...] = ()
    # explicit choices only, by collector name or the group name ``host``; use `collector_enabled`
    collectors: Mapping[str, bool] = field(default_factory=dict, hash=False)
    collector_textfile_directory: Path | None = None
    kubernetes_pod_resources_socket: Path | None = None
    kubernetes_container_logs: Path | None = None
    slurm_jobs_directory: Path | None = None
    slurm_gpu_numbers: str = INDEX
    log_level: str = "info"
    log_format: str = "logfmt"
    replay: Path | None = None
    simulate: str | None = None
    simulate_at_seconds: float = 0.0
    simulate_pace: int = 1
    config_file: str | None = field(default=None, compare=False)  # the configuration file, or None

    def __post_init__(self) -> None:
        # A read-only copy, so that the caller can't change it later.
        object.__setattr__(self, "collectors", MappingProxyType(dict(self.collectors)))


def collector_enabled(config: Config, name: str, default: bool) -> bool:  # noqa: FBT001 - data, not a mode switch
    """Whether the collector runs: its own switch, or else its group's, or else its default."""
    group = HOST_GROUP if name.startswith(f"{HOST_GROUP}_") else name
    return config.collectors.get(name, config.collectors.get(group, default))
