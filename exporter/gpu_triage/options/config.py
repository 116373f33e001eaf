"""The configuration of every part of the program: each option once, with its default and what it accepts.

`gpu_triage.options.option_table` makes the flags of it, `gpu_triage.options.option_sources` reads and validates it.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from pathlib import Path
from typing import Annotated, Any, Final

from gpu_triage.documents import quoted
from gpu_triage.documents.pcie_values import MOST_GENERATION, WIDTHS
from gpu_triage.options import values
from gpu_triage.options.values import TextType, duration, whole_number

HOST_GROUP = "host"
"""Switch for all collectors with names starting with ``host_``."""


class Origin(IntEnum):
    """Source of a setting; a higher value takes precedence."""

    SCENARIO = 0
    FILE = 1
    VARIABLE = 2
    FLAG = 3


@dataclass(frozen=True, slots=True)
class Setting:
    """The unparsed texts of an option (several only if it is repeatable), and where it was set: ``config.yml: key``."""

    texts: tuple[str, ...]
    source: str
    origin: Origin = Origin.SCENARIO


@dataclass(frozen=True, slots=True)
class JudgeOption:
    """An unparsed setting of the judge: ``thermal.hw``, ``wait`` and ``5m``; validated where findings are known."""

    code: str  # of the finding
    name: str  # ``wait``, ``hold``, or the name of a threshold
    text: str  # the value
    origin: Origin = field(default=Origin.FLAG, compare=False)
    place: str = field(default="--judge", compare=False)  # where it was set, for messages: ``config.yml: judge``


_SETTING: Final = re.compile(r"\s*([^=\s]+)\.([^=.\s]+)\s*=\s*(.*?)\s*")
_EXAMPLE: Final = "such as thermal.hw.wait=5m"


def _parse_setting(text: str) -> JudgeOption:
    match = _SETTING.fullmatch(text)
    if match is None:
        raise ValueError(f"{quoted(text)} is invalid; write a finding, a setting of it and a value, {_EXAMPLE}")
    return JudgeOption(match[1], match[2], match[3])


def _texts_in_file(value: Any) -> tuple[str, ...]:
    """Convert the value in the file to command line syntax. Raises ValueError if it has a different structure."""
    if not isinstance(value, dict):
        raise ValueError("write a table for each finding, such as thermal.hw: {wait: 5m}")  # noqa: TRY004 - invalid user input
    texts = []
    for code, settings in value.items():
        if not isinstance(settings, dict):
            raise ValueError(f"{code}: write its settings as a table, such as {{wait: 5m}}")  # noqa: TRY004 - as above
        for name, text in settings.items():
            if not isinstance(text, str):
                raise ValueError(f"{code}.{name}: write one value, such as 5m")  # noqa: TRY004 - as above
            texts.append(f"{code}.{name}={text}")
    return tuple(texts)


JUDGE_SETTING: Final = TextType("SETTING", _parse_setting, "{0.code}.{0.name}={0.text}".format, _texts_in_file)


@dataclass(frozen=True, slots=True)
class LineRate:
    """Line rate of the devices that match a pattern, in each direction."""

    device: str
    bytes_per_second: int


_RATE: Final = re.compile(r"([0-9]{1,6})(M|G)")
_BYTES_PER_SECOND: Final = {"M": 1_000_000 // 8, "G": 1_000_000_000 // 8}


def _parse_line_rate(text: str) -> LineRate:
    device, _, rate = text.partition("=")
    match = _RATE.fullmatch(rate.strip())
    if match is None or not int(match[1]):
        raise ValueError(
            f"{quoted(text)} is invalid; write a device or a pattern and bits per second, such as ens5=100G"
        )
    return LineRate(str(values.DEVICE_PATTERN.parse(device.strip())), int(match[1]) * _BYTES_PER_SECOND[match[2]])


def _show_line_rate(rate: LineRate) -> str:
    unit = "M" if rate.bytes_per_second % _BYTES_PER_SECOND["G"] else "G"
    return f"{rate.device}={rate.bytes_per_second // _BYTES_PER_SECOND[unit]}{unit}"


LINE_RATE: Final = TextType("DEVICE=RATE", _parse_line_rate, _show_line_rate)


RULES, DEFAULT, FULL = PROFILES = ("rules", "default", "full")
"""Valid values of ``--metrics.profile``."""

INDEX, MINOR = GPU_NUMBERS = ("index", "minor")
"""Valid values of ``--slurm.gpu-numbers``."""


@dataclass(frozen=True, slots=True)
class Config:
    """The user's settings, validated, with the program's defaults for the rest.

    A field is annotated with what its option accepts, and with the option's key unless it is that of the field, as
    ``web.max-requests`` for ``web_max_requests``. Fields are in the order of the help; `meanings.json` has their
    meanings. None turns a feature off; with `replay` and `simulate` None, the host is the real one.
    """

    web_listen_addresses: Annotated[tuple[str, ...], values.LISTEN_ADDRESS, "web.listen-address"] = (":9836",)
    web_allowed_hosts: Annotated[tuple[str, ...], values.HOST_NAME] = ()
    web_telemetry_path: Annotated[str, values.URL_PATH] = "/metrics"
    web_max_requests: Annotated[int, whole_number(1, 1000)] = 40
    web_enable_lifecycle: Annotated[bool, values.TRUTH] = False
    web_systemd_socket: Annotated[bool, values.TRUTH] = False
    web_config_file: Annotated[str | None, values.FILE_NAME, "web.config.file"] = None
    sample_fast_seconds: Annotated[float, duration("100ms", "60s")] = 1.0
    sample_medium_seconds: Annotated[float, duration("100ms", "1h")] = 5.0
    sample_slow_seconds: Annotated[float, duration("100ms", "24h")] = 60.0
    sample_deadline_seconds: Annotated[float, duration("100ms", "120s")] = 5.0
    stale_after: Annotated[int, whole_number(2, 100), "stale-after"] = 3
    expect_gpu_count: Annotated[int | None, whole_number(0, 64)] = None
    expect_pcie_generation: Annotated[int | None, whole_number(1, MOST_GENERATION)] = None
    expect_pcie_width: Annotated[int | None, values.number_among(*WIDTHS)] = None
    expect_p2p: Annotated[bool | None, values.TRUTH] = None
    baseline_file: Annotated[Path | None, values.NEW_PATH] = None
    baseline_from_host: Annotated[bool, values.TRUTH] = False
    judge: Annotated[tuple[JudgeOption, ...], JUDGE_SETTING] = ()  # the last one wins
    metrics_profile: Annotated[str, values.OneOf(PROFILES)] = DEFAULT
    metrics_include: Annotated[tuple[str, ...], values.METRIC_PATTERN] = ()
    metrics_exclude: Annotated[tuple[str, ...], values.METRIC_PATTERN] = ()
    process_max: Annotated[int, whole_number(0, 1024)] = 32
    network_device_include: Annotated[tuple[str, ...], values.DEVICE_PATTERN] = ()
    network_device_exclude: Annotated[tuple[str, ...], values.DEVICE_PATTERN] = ()
    network_line_rate: Annotated[tuple[LineRate, ...], LINE_RATE] = ()
    nccl_ras_address: Annotated[tuple[str, ...], values.TCP_ADDRESS] = ()
    collector_textfile_directory: Annotated[Path | None, values.NEW_PATH, "collector.textfile.directory"] = None
    # explicit choices only, by collector name or the group name ``host``; use `collector_enabled`
    collectors: Mapping[str, bool] = field(default_factory=dict, hash=False)
    kubernetes_pod_resources_socket: Annotated[Path | None, values.SOCKET] = None
    kubernetes_container_logs: Annotated[Path | None, values.NEW_PATH] = None
    slurm_jobs_directory: Annotated[Path | None, values.NEW_PATH] = None
    slurm_gpu_numbers: Annotated[str, values.OneOf(GPU_NUMBERS)] = INDEX
    state_directory: Annotated[Path | None, values.NEW_PATH] = None
    flight_recorder_directory: Annotated[Path | None, values.NEW_PATH, "flight-recorder.directory"] = None
    path_procfs: Annotated[Path, values.DIRECTORY] = Path("/proc")
    path_sysfs: Annotated[Path, values.DIRECTORY] = Path("/sys")
    path_kmsg: Annotated[Path, values.EXISTING_PATH] = Path("/dev/kmsg")
    log_level: Annotated[str, values.OneOf(("debug", "info", "warning", "error"))] = "info"
    log_format: Annotated[str, values.OneOf(("logfmt", "json"))] = "logfmt"
    replay: Annotated[Path | None, values.EXISTING_PATH] = None
    simulate: Annotated[str | None, values.SCENARIO] = None
    simulate_at_seconds: Annotated[float, duration("0s", "720h"), "simulate-at"] = 0.0
    simulate_pace: Annotated[int, whole_number(1, 100), "simulate-pace"] = 1
    config_file: str | None = field(default=None, compare=False)  # the configuration file, or None


def collector_enabled(config: Config, name: str, default: bool) -> bool:  # noqa: FBT001 - data, not a mode switch
    """Whether the collector runs: its own switch, or else its group's, or else its default."""
    group = HOST_GROUP if name.startswith(f"{HOST_GROUP}_") else name
    return config.collectors.get(name, config.collectors.get(group, default))
