"""Every option, declared once.

Its flag, environment variable, file key, line of help and line of documentation all follow from one row here.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpu_triage.config import HOST_GROUP, Config
from gpu_triage.options import values

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gpu_triage.options.values import ValueKind

VARIABLE_PREFIX = "GPU_TRIAGE_"
CONFIG_FILE = "config.file"
SIMULATE = "simulate"


@dataclass(frozen=True, slots=True)
class CollectorSwitch:
    """A collector that can be switched on and off: its name, what it reads, and whether it runs unasked."""

    name: str
    help: str
    default: bool


@dataclass(frozen=True, slots=True)
class Option:
    """One option.

    Attributes:
        name: dotted name, ``web.listen-address``; the flag, the variable and the file key derive from it.
        field: the field of Config it sets; None for the file's own path, which no part of the program needs.
        section: the heading it stands under in the help.
        kind: what its value may be.
        help: a sentence on what it does.
        many: whether it may be given several times.
        collector: the switch's name in Config.collectors; None for an ordinary option.
        preset: a collector's default, for the help; an ordinary option's default is Config's.
        on_off: whether its flag takes no value: ``--name`` is on, ``--no-name`` off.
    """

    name: str
    field: str | None
    section: str
    kind: ValueKind
    help: str
    many: bool = False
    collector: str | None = None
    preset: str = ""
    on_off: bool = False

    @property
    def flag(self) -> str:
        """The flag: ``--web.listen-address``."""
        return f"--{self.name}"

    @property
    def negative_flag(self) -> str:
        """The flag that switches it off: ``--no-collector.process``."""
        return f"--no-{self.name}"

    @property
    def variable(self) -> str:
        """The environment variable: ``GPU_TRIAGE_WEB_LISTEN_ADDRESS``."""
        return VARIABLE_PREFIX + self.name.replace(".", "_").replace("-", "_").upper()

    @property
    def synopsis(self) -> str:
        """How the help writes the flag: ``--sample.fast DURATION``, ``--[no-]collector.process``."""
        return f"--[no-]{self.name}" if self.on_off else f"{self.flag} {self.kind.metavar}"

    @property
    def default(self) -> str:
        """The default as an operator would write it; ``none`` where there is none."""
        if self.collector is not None:
            return self.preset
        value = None if self.field is None else getattr(Config(), self.field)
        if value is None:
            return "none"
        return ",".join(map(self.kind.show, value)) if self.many else self.kind.show(value)


_LEADING = (
    Option(
        "web.listen-address",
        "web_listen_addresses",
        "Web",
        values.LISTEN_ADDRESS,
        "Address to serve on: host:port, :port for every interface, [v6]:port or unix:/path; can be repeated.",
        many=True,
    ),
    Option(
        "web.telemetry-path",
        "web_telemetry_path",
        "Web",
        values.URL_PATH,
        "URL path the metrics are served under.",
    ),
    Option(
        "web.max-requests",
        "web_max_requests",
        "Web",
        values.whole_number(1, 1000),
        "Requests answered at the same time, and answers that may wait for clients to read them; more are turned away.",
    ),
    Option(
        "web.enable-lifecycle",
        "web_enable_lifecycle",
        "Web",
        values.TRUTH,
        "Let POST /-/release give every GPU handle back, so that a GPU can be reset or its driver unbound, "
        "and POST /-/acquire take them again; SIGUSR1 and SIGUSR2 do the same without it.",
        on_off=True,
    ),
    Option(
        "web.systemd-socket",
        "web_systemd_socket",
        "Web",
        values.TRUTH,
        "Serve on the sockets that systemd's socket unit opened, instead of opening any.",
        on_off=True,
    ),
    Option(
        "web.config.file",
        "web_config_file",
        "Web",
        values.FILE_NAME,
        "YAML file with TLS, passwords and headers, as Prometheus's own exporters take it.",
    ),
    Option(
        "sample.fast",
        "sample_fast_seconds",
        "Sampling",
        values.duration("100ms", "60s"),
        "How often utilisation, power, clocks and throttling are sampled.",
    ),
    Option(
        "sample.medium",
        "sample_medium_seconds",
        "Sampling",
        values.duration("100ms", "1h"),
        "How often PCIe, memory, temperatures, processes and the host are sampled; never less than the fast interval.",
    ),
    Option(
        "sample.slow",
        "sample_slow_seconds",
        "Sampling",
        values.duration("100ms", "24h"),
        "How often identity, limits, topology and the ECC inventory are sampled; never less than the medium interval.",
    ),
    Option(
        "sample.deadline",
        "sample_deadline_seconds",
        "Sampling",
        values.duration("100ms", "120s"),
        "Time a GPU may take to answer one collector before it is published as stalled.",
    ),
    Option(
        "stale-after",
        "stale_after",
        "Sampling",
        values.whole_number(2, 100),
        "Intervals after which a value that was not renewed is withdrawn.",
    ),
    Option(
        "expect.gpu-count",
        "expect_gpu_count",
        "Expectations",
        values.whole_number(0, 64),
        "GPUs this host should have.",
    ),
    Option(
        "expect.pcie-generation",
        "expect_pcie_generation",
        "Expectations",
        values.whole_number(1, 7),
        "PCIe generation every GPU's link should reach.",
    ),
    Option(
        "expect.pcie-width",
        "expect_pcie_width",
        "Expectations",
        values.number_among(1, 2, 4, 8, 12, 16, 32),
        "PCIe lanes every GPU's link should have.",
    ),
    Option(
        "expect.p2p",
        "expect_p2p",
        "Expectations",
        values.TRUTH,
        "Whether the GPUs should reach each other's memory directly.",
    ),
    Option(
        "baseline.file",
        "baseline_file",
        "Expectations",
        values.BASELINE,
        "Baseline of this host, as gpu-triage baseline write records it; what differs is published, and what it says "
        "is expected where no --expect option says otherwise.",
    ),
    Option(
        "baseline.from-host",
        "baseline_from_host",
        "Expectations",
        values.TRUTH,
        "Record the baseline from this host as soon as it is whole and well, once, and keep it in the state directory.",
        on_off=True,
    ),
    Option(
        "process.max",
        "process_max",
        "Collectors",
        values.whole_number(0, 1024),
        "Most processes published for each GPU; 0 publishes none.",
    ),
    Option(
        "collector.textfile.directory",
        "collector_textfile_directory",
        "Collectors",
        values.FOLDER_NAME,
        "Folder of *.prom files that jobs write and the exporter republishes.",
    ),
)

_TRAILING = (
    Option(
        "kubernetes.pod-resources-socket",
        "kubernetes_pod_resources_socket",
        "Kubernetes",
        values.SOCKET,
        "The kubelet's pod-resources socket, to name the pod and container of each GPU process; "
        "needs pip install gpu-triage-exporter[kubernetes].",
    ),
    Option(
        "state.directory",
        "state_directory",
        "Paths",
        values.FOLDER_NAME,
        "Folder for what must outlive the exporter: its ledger of incidents, and a baseline from the host.",
    ),
    Option("path.procfs", "path_procfs", "Paths", values.DIRECTORY, "Where the host's procfs is mounted."),
    Option("path.sysfs", "path_sysfs", "Paths", values.DIRECTORY, "Where the host's sysfs is mounted."),
    Option("path.kmsg", "path_kmsg", "Paths", values.EXISTING_PATH, "The kernel log device, for Xid events."),
    Option(
        "log.level",
        "log_level",
        "Logging",
        values.word_among("debug", "info", "warning", "error"),
        "The least severe level that is logged.",
    ),
    Option(
        "log.format",
        "log_format",
        "Logging",
        values.word_among("logfmt", "json"),
        "How a line of the log is written.",
    ),
    Option(
        "replay",
        "replay",
        "Simulation",
        values.RECORDING,
        "Recording to run instead of this host: a folder or .tar.gz of gpu-triage record.",
    ),
    Option(
        SIMULATE,
        "simulate",
        "Simulation",
        values.SCENARIO,
        "Scenario to run instead of this host: a name, or the path of a TOML file.",
    ),
    Option(
        "simulate-pace",
        "simulate_pace",
        "Simulation",
        values.whole_number(1, 100),
        "How many times faster the scenario's events follow each other; its clocks and counters keep real time.",
    ),
    Option(
        CONFIG_FILE,
        None,
        "Configuration file",
        values.FILE_NAME,
        "YAML file to read options from; its keys are the options' names, nested by the dots.",
    ),
)


def all_options(switches: Iterable[CollectorSwitch]) -> tuple[Option, ...]:
    """Every option in the order of the help: the fixed ones, one a collector, one for the host group.

    Raises:
        ValueError: two switches have one name, or one is named like the group.
    """
    switches = tuple(switches)
    names = [switch.name for switch in switches]
    if len({*names, HOST_GROUP}) != len(names) + 1:
        raise ValueError(f"collector names must differ from each other and from {HOST_GROUP!r}: {names}")
    return (*_LEADING, *_collector_options(switches), *_TRAILING)


def _collector_options(switches: tuple[CollectorSwitch, ...]) -> Iterator[Option]:
    covered = [switch.name for switch in switches if switch.name.startswith(f"{HOST_GROUP}_")]
    if covered:
        yield _collector_option(
            HOST_GROUP,
            f"All of {', '.join(covered)} at once; a collector's own switch beats this one.",
            "each collector's own",
        )
    for switch in switches:
        yield _collector_option(switch.name, switch.help, "true" if switch.default else "false")


def _collector_option(name: str, meaning: str, preset: str) -> Option:
    return Option(
        name=f"collector.{name}",
        field="collectors",
        section="Collectors",
        kind=values.TRUTH,
        help=meaning,
        collector=name,
        preset=preset,
        on_off=True,
    )


def options_markdown(switches: Iterable[CollectorSwitch]) -> str:
    """Every option as Markdown tables, one below a heading for each section; ends with a newline."""
    sections: dict[str, list[str]] = {}
    for option in all_options(switches):
        sections.setdefault(option.section, []).append(_markdown_row(option))
    head = "| Flag | Environment variable | File key | Default | Meaning |\n|---|---|---|---|---|"
    return "\n".join(f"## {title}\n\n{head}\n{''.join(rows)}" for title, rows in sections.items())


def _markdown_row(option: Option) -> str:
    file_key = "none" if option.field is None else f"`{option.name}`"
    cells = (f"`{option.synopsis}`", f"`{option.variable}`", file_key, f"`{option.default}`", option.help)
    escaped = (cell.replace("|", "\\|") for cell in cells)
    return f"| {' | '.join(escaped)} |\n"
