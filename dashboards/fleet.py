"""GPU fleet & topology: the worst hosts and GPUs, how GPUs are connected, and which differ from their peers."""

from __future__ import annotations

from dashboards.board import Board, Row
from dashboards.fleet_differences import differences
from dashboards.fleet_jobs import jobs
from dashboards.fleet_links import links
from dashboards.judgment import BOTTLENECK_COLUMN, HOST_VERDICT_COLUMN, VERDICT_COLUMN
from dashboards.palette import BAD, GOOD, INFO, WATCH
from dashboards.panels import PanelBuilder, Query, Size, limits, lines, tile
from dashboards.selectors import OF_HOST, TARGET, bottleneck, by_gpu, by_host, gpu, host, known, power_of_limit
from dashboards.tables import CHOSEN_HOST, GPU, HOST, Column, table_of
from dashboards.value_mappings import BOTTLENECK, UP
from gpu_triage.read.exporter.judgment import GPU_BOTTLENECK, GPU_VERDICT

TILE = Size(3, 4)
DIAGNOSIS = ("Diagnose this host", f"/d/gpu-triage-diagnosis?{CHOSEN_HOST}&${{__url_time_range}}")
_LIMITED = f"< {GPU_BOTTLENECK.value_of('communication')}"
"""Bottleneck classes to fix; communication and later ones may be inherent in the job."""


def board() -> Board:
    return Board(
        uid="gpu-triage-fleet",
        title="GPU fleet & topology",
        description="All GPU hosts, the worst first; whose their GPUs are, how they are linked, and which differ from "
        "their peers.",
        since="6h",
        refresh="1m",
        owners=True,
        pod_label=True,
        rows=(
            Row("", *_tiles(), _classes(), _worst_hosts(), _worst_gpus(), _repeat_offenders()),
            jobs(),
            links(),
            differences(),
            Row("Exporters", _exporters(), _collectors()),
        ),
    )


def _tiles() -> tuple[PanelBuilder, ...]:
    return (
        tile("Hosts", "Hosts whose exporter is up.", f"count({host('up')} == 1 and on ({TARGET}) {known()})",
             unit="none", size=TILE),
        tile("GPUs", "GPUs that answer the driver.", f"count({gpu('gpu_up')} == 1)", unit="none", size=TILE),
        tile("GPUs not answering", "Lost or stalled. Above 0: see the worst GPUs below.",
             _count(f"{gpu('gpu_up')} == 0", gpu("gpu_up")), unit="none", size=TILE, steps=limits((1, BAD))),
        tile("GPUs missing", "GPUs on the PCI bus that the driver does not list, all selected hosts.",
             f"sum(clamp_min({by_host(host('gpu_devices', _PCI))} - {by_host(host('gpu_devices', _NVML))}, 0))",
             unit="none", size=TILE, steps=limits((1, BAD))),
        tile("GPUs to drain", "GPUs with a critical finding: take them, or their hosts, out of service.",
             _with_verdict("drain"), unit="none", size=TILE, steps=limits((1, BAD))),
        tile("GPUs to watch", "GPUs with a warning: worth a ticket, not a page.", _with_verdict("watch"), unit="none",
             size=TILE, steps=limits((1, WATCH))),
        tile("GPUs held up", "GPUs limited by heat, power, clocks, their link, a hang or their host.",
             _count(f"{bottleneck()} {_LIMITED}", bottleneck()), unit="none", size=TILE, steps=limits((1, WATCH))),
        tile("Busy GPUs", "Mean busy share of all selected GPUs.", f"avg({gpu('instance_gpu:gpu_busy:ratio5m')})",
             unit="percentunit", size=TILE, decimals=0, graph=True),
    )  # fmt: skip


_PCI = 'source="pci"'
_NVML = 'source="nvml"'


def _count(those: str, of: str) -> str:
    """A count that is 0 if nothing matches, but has no value if the underlying series don't exist."""
    return f"count({those}) or 0 * count({of})"


def _with_verdict(state: str) -> str:
    verdicts = gpu(GPU_VERDICT.name)
    return _count(f"{verdicts} == {GPU_VERDICT.value_of(state)}", verdicts)


def _classes() -> PanelBuilder:
    return lines(
        "GPUs by bottleneck",
        "How many GPUs are in each class. A band that widens on many hosts at once points at what they share: "
        "storage, network, power or the room.",
        Query(f'count_values("rank", {bottleneck()})', "{{rank}}"),
        unit="none",
        size=Size(24, 8),
        stacked=True,
        names={str(rank): (name, color) for rank, name, color in BOTTLENECK},
    )


def _worst_hosts() -> PanelBuilder:
    return table_of(
        "Worst hosts",
        "Hosts to drain first, then to watch, with the worst class on each, how many GPUs are held up, and critical "
        "alerts. Start at the top; click a host to diagnose it.",
        Column("Host", label="instance", link=DIAGNOSIS),
        HOST_VERDICT_COLUMN,
        Column("Worst", expr=f"min by ({TARGET}) ({bottleneck()})", texts=BOTTLENECK),
        Column(
            "GPUs held up",
            expr=f"count by ({TARGET}) ({bottleneck()} {_LIMITED})\nor 0 * count by ({TARGET}) ({bottleneck()})",
            steps=limits((1, WATCH)),
        ),
        Column(
            "Critical alerts",
            expr=f"count by ({TARGET}) ({host('ALERTS', _CRITICAL)})\n"
            f"or 0 * count by ({TARGET}) ({host('gpu_exporter_build_info')})",
            steps=limits((1, BAD)),
        ),
        Column(
            "Hours lost, last day",
            expr=f"sum by ({TARGET}) ({host('instance_class:gpu_hours_lost:sum1d')})",
            unit="h",
            decimals=1,
        ),
        Column("GPUs", expr=by_host(host("gpu_devices", _NVML))),
        Column("On the bus", expr=by_host(host("gpu_devices", _PCI))),
        Column("Driver", expr=by_host(host("gpu_driver_up")), texts=UP),
        Column(
            "Busy", expr=f"avg by ({TARGET}) ({gpu('instance_gpu:gpu_busy:ratio5m')})", unit="percentunit", decimals=0
        ),
        sort=("-Verdict", "Worst"),
        size=Size(12, 10),
    )


def _worst_gpus() -> PanelBuilder:
    return table_of(
        "Worst GPUs",
        "Every selected GPU: those to drain first, then those to watch, then by bottleneck. Click a GPU for its "
        "details.",
        HOST,
        GPU,
        Column("Model", label="name"),
        Column("Known", expr=f"max by ({TARGET}, gpu, name) ({gpu('gpu_info')})", width=70),
        VERDICT_COLUMN,
        BOTTLENECK_COLUMN,
        Column("Busy", expr=by_gpu(gpu("instance_gpu:gpu_busy:ratio5m")), unit="percentunit", decimals=0),
        Column("Power of limit", expr=by_gpu(power_of_limit()), unit="percentunit"),
        Column("Temperature", expr=by_gpu(gpu("gpu_temperature_celsius", 'sensor="gpu"')), unit="celsius"),
        sort=("-Verdict", "Bottleneck"),
        size=Size(12, 10),
    )


def _repeat_offenders() -> PanelBuilder:
    return table_of(
        "Repeat offenders",
        "Faults within the last 30 days, by board and by slot. The same fault on one board in any slot: "
        "replace the board. On several boards in one slot: inspect slot, riser, power and cooling.",
        HOST,
        GPU,
        Column("Slot", label="pci_bus_id"),
        Column("Fault", label="kind"),
        Column("On this board", expr=_incidents('by="board"'), steps=limits((2, WATCH))),
        Column("In this slot", expr=_incidents('by="slot"'), steps=limits((2, WATCH))),
        Column(
            "Boards in this slot",
            expr=f"max by ({TARGET}, gpu, pci_bus_id, kind) ({gpu('gpu_incident_boards_recent', _MONTH)})",
            steps=limits((2, BAD)),
        ),
        sort=("-On this board", "-In this slot"),
        size=Size(24, 8),
    )


_MONTH = 'days="30"'


def _incidents(by: str) -> str:
    return f"max by ({TARGET}, gpu, pci_bus_id, kind) ({gpu('gpu_incidents_recent', f'{by}, {_MONTH}')})"


_CRITICAL = 'alertstate="firing", severity="critical"'


def _exporters() -> PanelBuilder:
    return table_of(
        "Exporters",
        "Whether each exporter is up, has its GPUs, receives Xids and serves real readings. Simulated readings outside "
        "a drill: remove --simulate.",
        HOST,
        Column("Status", expr=by_host(host("up") + f" and on ({TARGET}) " + known()), texts=UP),
        Column("Simulated", expr=by_host(host("gpu_exporter_simulated")), texts=((0, "no", GOOD), (1, "yes", INFO))),
        Column(
            "Released", expr=by_host(host("gpu_exporter_gpus_released")), texts=((0, "no", GOOD), (1, "yes", WATCH))
        ),
        Column("Xid sources", expr=f"sum by ({TARGET}) ({host('gpu_exporter_xid_source_up')})"),
        Column(
            "Failing collectors",
            expr=f"count by ({TARGET}) ({host('gpu_exporter_collector_success')} == 0)\n"
            f"or 0 * count by ({TARGET}) ({host('gpu_exporter_collector_success')})",
            steps=limits((1, WATCH)),
        ),
        sort="Status",
        size=Size(12, 8),
    )


def _collectors() -> PanelBuilder:
    return lines(
        "Slowest collector",
        "How long the slowest collector of each host took. Rising: the driver responds slowly, as it often does before "
        "it hangs.",
        Query(f"max by ({TARGET}) ({host('gpu_exporter_slowest_collector_seconds')})", OF_HOST),
        unit="s",
        size=Size(12, 8),
    )
