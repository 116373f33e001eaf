"""Declares every option once: flag, environment variable, file key, help and documentation derive from its row."""

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
    Option(
        "web.listen-address",
        values.LISTEN_ADDRESS,
        "Address to serve on: host:port, :port for every interface, [v6]:port or unix:/path; can be repeated.",
        field="web_listen_addresses",
        many=True,
    ),
    Option(
        "web.allowed-hosts",
        values.HOST_NAME,
        "Host name that requests may be addressed to, or .example.com for a whole domain; can be repeated. IP "
        "addresses and localhost are always allowed. Default: every name.",
        many=True,
    ),
    Option("web.telemetry-path", values.URL_PATH, "URL path the metrics are served under."),
    Option(
        "web.max-requests",
        values.whole_number(1, 1000),
        "Most concurrent requests, including responses that clients have not read.",
    ),
    Option(
        "web.enable-lifecycle",
        values.TRUTH,
        "Let POST /-/release release all GPUs, so that they can be reset or unbound, and POST /-/acquire reopen them, "
        "as SIGUSR1 and SIGUSR2 always do.",
        on_off=True,
    ),
    Option("web.systemd-socket", values.TRUTH, "Serve the sockets of a systemd socket unit.", on_off=True),
    Option(
        "web.config.file", values.FILE_NAME, "YAML file with TLS, passwords and headers, in exporter-toolkit format."
    ),
    Option(
        "sample.fast",
        values.duration("100ms", "60s"),
        "How often utilization, power, clocks and throttling are sampled.",
    ),
    Option(
        "sample.medium",
        values.duration("100ms", "1h"),
        "How often PCIe, memory, temperatures, processes and the host are sampled; at least the fast interval.",
    ),
    Option(
        "sample.slow",
        values.duration("100ms", "24h"),
        "How often identity, limits, topology and the ECC inventory are sampled; at least the medium interval.",
    ),
    Option(
        "sample.deadline",
        values.duration("100ms", "120s"),
        "Time a GPU may take to answer one collector before it is published as stalled.",
    ),
    Option(
        "stale-after", values.whole_number(2, 100), "Intervals after which a value that was not renewed is withdrawn."
    ),
    Option("expect.gpu-count", values.whole_number(0, 64), "GPUs this host should have."),
    Option(
        "expect.pcie-generation",
        values.whole_number(1, MOST_GENERATION),
        "PCIe generation every GPU's link should reach.",
    ),
    Option("expect.pcie-width", values.number_among(*WIDTHS), "PCIe lanes every GPU's link should have."),
    Option("expect.p2p", values.TRUTH, "Whether the GPUs should reach each other's memory directly."),
    Option(
        "baseline.file",
        values.NEW_PATH,
        "Baseline of this host, from gpu-triage baseline write: differences are published. --expect options override "
        "it.",
    ),
    Option(
        "baseline.from-host",
        values.TRUTH,
        "Record the baseline from this host once, when it is complete and healthy, and keep it in the state directory.",
        on_off=True,
    ),
    Option(
        JUDGE,
        values.JUDGE_SETTING,
        "Wait, hold or threshold of a finding as FINDING.NAME=VALUE, such as thermal.hw.wait=5m; can be repeated, and "
        "combined with other sources. In the file: thermal.hw: {wait: 5m, share: 20%}; SIGHUP reads it again. "
        "gpu-triage judge --print-config lists all settings.",
        many=True,
        in_file=values.judge_texts_in_file,
    ),
    Option(
        "metrics.profile",
        values.OneOf(PROFILES),
        "Metrics to publish: rules for what the shipped rules need, full also for single links, pairs of GPUs and "
        "collectors.",
    ),
    Option(
        "metrics.include",
        values.METRIC_PATTERN,
        "Further metrics to publish, with all their series: a name, or a pattern such as gpu_nvlink_*; can be "
        "repeated.",
        many=True,
    ),
    Option(
        "metrics.exclude",
        values.METRIC_PATTERN,
        "Metrics not to publish, as a name or a pattern; can be repeated. Overrides the other two.",
        many=True,
    ),
    Option("process.max", values.whole_number(0, 1024), "Most processes published per GPU; 0 for none."),
    Option(
        "network.device-include",
        values.DEVICE_PATTERN,
        "Network interfaces and InfiniBand or RoCE adapters to read, as a name or a pattern such as mlx5_*; can be "
        "repeated. Default: all. No file of another device is opened.",
        many=True,
    ),
    Option(
        "network.device-exclude",
        values.DEVICE_PATTERN,
        "Network interfaces and adapters not to read; overrides --network.device-include.",
        many=True,
    ),
    Option(
        "network.line-rate",
        values.LINE_RATE,
        "Line rate per direction of a device or a pattern, such as ens5=100G for AWS ENA or efa*=200G; can be "
        "repeated. Overrides what the driver reports.",
        many=True,
    ),
    Option(
        "nccl.ras-address",
        values.TCP_ADDRESS,
        "Address at which NCCL jobs on this host answer about their ranks, such as localhost:28028, NCCL's default; "
        "can be repeated.",
        many=True,
    ),
    Option(
        "collector.textfile.directory",
        values.NEW_PATH,
        "Folder with *.prom files of jobs (gpu_job_*) and of NCCL Inspector to publish.",
    ),
)

_TRAILING = (
    Option(
        "kubernetes.pod-resources-socket",
        values.SOCKET,
        "The kubelet's pod-resources socket, for pods that have GPUs; needs pip install "
        "gpu-triage-exporter[kubernetes].",
    ),
    Option(
        "kubernetes.container-logs",
        values.NEW_PATH,
        "Folder of the links to containers' logs (/var/log/containers), for the pod of each process, also on shared "
        "GPUs. No log is read.",
    ),
    Option("slurm.jobs-directory", values.NEW_PATH, "Folder in which Slurm's prolog records the GPUs of each job."),
    Option(
        "slurm.gpu-numbers",
        values.OneOf(GPU_NUMBERS),
        "How Slurm numbers GPUs: index if gres.conf lists them by PCI address, as AutoDetect=nvml does, minor if by "
        "device file.",
    ),
    Option(
        "state.directory",
        values.NEW_PATH,
        "Folder for states of findings, incidents, and a baseline from the host, which survive a restart. One "
        "exporter at a time writes there.",
    ),
    Option(
        "flight-recorder.directory",
        values.NEW_PATH,
        "Folder for recordings of the ten minutes before a critical finding; at most 20 and 64 MiB, the oldest go "
        "first.",
    ),
    Option("path.procfs", values.DIRECTORY, "Where the host's procfs is mounted."),
    Option("path.sysfs", values.DIRECTORY, "Where the host's sysfs is mounted."),
    Option("path.kmsg", values.EXISTING_PATH, "The kernel log device, for Xid events."),
    Option("log.level", values.OneOf(("debug", "info", "warning", "error")), "The least severe level that is logged."),
    Option("log.format", values.OneOf(("logfmt", "json")), "How a line of the log is written."),
    Option(
        "replay",
        values.EXISTING_PATH,
        "Recording to run instead of this host: a folder or .tar.gz of gpu-triage record.",
    ),
    Option(SIMULATE, values.SCENARIO, "Scenario to run instead of this host: a name, or the path of a TOML file."),
    Option("simulate-at", values.duration("0s", "720h"), "Scenario time to start at, such as 10m."),
    Option(
        "simulate-pace",
        values.whole_number(1, 100),
        "How many times faster the clock of the scenario's host runs. The exporter samples in real time, so intervals "
        "are that many times longer on it, and GpuHostClockWrong fires.",
    ),
    Option(
        CONFIG_FILE,
        values.FILE_NAME,
        "YAML file of options; its keys are the options' names, nested by the dots.",
        field=None,
    ),
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
