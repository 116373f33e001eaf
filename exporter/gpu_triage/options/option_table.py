"""Declares every option once: flag, environment variable, file key, help (`meanings.json`) and documentation."""

from collections.abc import Iterable
from dataclasses import dataclass

from gpu_triage.documents.pcie_values import MOST_GENERATION, WIDTHS
from gpu_triage.options import values
from gpu_triage.options.config import GPU_NUMBERS, HOST_GROUP, PROFILES
from gpu_triage.options.option import Option

CONFIG_FILE = "config.file"
SIMULATE = "simulate"
JUDGE = "judge"


@dataclass(frozen=True, slots=True)
class CollectorSwitch:
    """A collector that can be switched on and off: name, what it reads, and whether it runs by default."""

    name: str
    help: str
    default: bool


_LEADING = (
    Option("web.listen-address", values.LISTEN_ADDRESS, field="web_listen_addresses", many=True),
    Option("web.allowed-hosts", values.HOST_NAME, many=True),
    Option("web.telemetry-path", values.URL_PATH),
    Option("web.max-requests", values.whole_number(1, 1000)),
    Option("web.enable-lifecycle", values.TRUTH, on_off=True),
    Option("web.systemd-socket", values.TRUTH, on_off=True),
    Option("web.config.file", values.FILE_NAME),
    Option("sample.fast", values.duration("100ms", "60s")),
    Option("sample.medium", values.duration("100ms", "1h")),
    Option("sample.slow", values.duration("100ms", "24h")),
    Option("sample.deadline", values.duration("100ms", "120s")),
    Option("stale-after", values.whole_number(2, 100)),
    Option("expect.gpu-count", values.whole_number(0, 64)),
    Option("expect.pcie-generation", values.whole_number(1, MOST_GENERATION)),
    Option("expect.pcie-width", values.number_among(*WIDTHS)),
    Option("expect.p2p", values.TRUTH),
    Option("baseline.file", values.NEW_PATH),
    Option("baseline.from-host", values.TRUTH, on_off=True),
    Option(JUDGE, values.JUDGE_SETTING, many=True, in_file=values.judge_texts_in_file),
    Option("metrics.profile", values.OneOf(PROFILES)),
    Option("metrics.include", values.METRIC_PATTERN, many=True),
    Option("metrics.exclude", values.METRIC_PATTERN, many=True),
    Option("process.max", values.whole_number(0, 1024)),
    Option("network.device-include", values.DEVICE_PATTERN, many=True),
    Option("network.device-exclude", values.DEVICE_PATTERN, many=True),
    Option("network.line-rate", values.LINE_RATE, many=True),
    Option("nccl.ras-address", values.TCP_ADDRESS, many=True),
    Option("collector.textfile.directory", values.NEW_PATH),
)

_TRAILING = (
    Option("kubernetes.pod-resources-socket", values.SOCKET),
    Option("kubernetes.container-logs", values.NEW_PATH),
    Option("slurm.jobs-directory", values.NEW_PATH),
    Option("slurm.gpu-numbers", values.OneOf(GPU_NUMBERS)),
    Option("state.directory", values.NEW_PATH),
    Option("flight-recorder.directory", values.NEW_PATH),
    Option("path.procfs", values.DIRECTORY),
    Option("path.sysfs", values.DIRECTORY),
    Option("path.kmsg", values.EXISTING_PATH),
    Option("log.level", values.OneOf(("debug", "info", "warning", "error"))),
    Option("log.format", values.OneOf(("logfmt", "json"))),
    Option("replay", values.EXISTING_PATH),
    Option(SIMULATE, values.SCENARIO),
    Option("simulate-at", values.duration("0s", "720h")),
    Option("simulate-pace", values.whole_number(1, 100)),
    Option(CONFIG_FILE, values.FILE_NAME, field=None),
)


def all_options(switches: Iterable[CollectorSwitch]) -> tuple[Option, ...]:
    """All options in the order of the help: fixed ones, one per collector, and one for the group of host collectors."""
    switches = tuple(switches)
    covered = [switch.name for switch in switches if switch.name.startswith(f"{HOST_GROUP}_")]
    about = f"All of {', '.join(covered)} at once; a collector's own switch beats this one."
    group = (_of_collector(HOST_GROUP, about, "each collector's own"),) if covered else ()
    single = (_of_collector(each.name, each.help, "true" if each.default else "false") for each in switches)
    return (*_LEADING, *group, *single, *_TRAILING)


def _of_collector(name: str, meaning: str, preset: str) -> Option:
    key = f"collector.{name}"
    return Option(key, values.TRUTH, meaning, field="collectors", collector=name, preset=preset, on_off=True)
