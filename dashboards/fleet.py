"""GPU fleet & topology: the worst hosts and GPUs, how GPUs are connected, and which differ from their peers."""

from dashboards.board import Board, Row
from dashboards.fleet_differences import differences
from dashboards.fleet_jobs import owners, slow_jobs
from dashboards.fleet_links import links
from dashboards.judgment import present
from dashboards.palette import BAD, GOOD, GRAY, INFO, PLAIN, WATCH
from dashboards.panels import Cell, PanelBuilder, Query, Size, limits, lines, strip, worded_strip
from dashboards.selectors import (
    MOST_ROWS,
    MOST_SERIES,
    OF_HOST,
    TARGET,
    bottleneck,
    by_gpu,
    by_host,
    gpu,
    gpu_state,
    host,
    host_state,
    most,
    only,
    silent,
    silent_since,
    unread_gpus,
    when,
    worst_gpus,
    worst_hosts,
)
from dashboards.tables import GPU, GPU_OR_HOST, HOST, NO_LABEL, Column, ago, table_of
from dashboards.value_mappings import BOTTLENECK, GPU_STATE, HOST_STATE, SILENT, STEP, WATCH_IF_YES
from gpu_triage.read.exporter.judgment import GPU_BOTTLENECK, GPU_VERDICT

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
            Row("", _read(), *_tiles(), _worst_hosts(), _worst_gpus(), slow_jobs(), _classes(), _repeat_offenders()),
            owners(),
            links(),
            differences(),
            Row("Maintenance and exporters", _maintenance(), _exporters(), _collectors(), folded=True),
        ),
    )


def _read() -> PanelBuilder:
    unread, released = unread_gpus("unless"), unread_gpus("and")
    read = f"({by_gpu(gpu('gpu_up'))} == 1)"
    listed = f"count by ({TARGET}) ({read} or {unread} or {released})"
    unlisted = f"({by_host(host('gpu_devices', _PCI))} > 0 unless on ({TARGET}) {listed})"
    return worded_strip(
        "What is read",
        "How many of the hosts and GPUs known in the time shown can be read now. Red: a host is down, or a GPU is "
        "lost, stalled, without a driver or on such a host: what the other panels show lacks it. Amber: hosts that "
        "are no longer scraped, retired or not, or released GPUs. No data: no exporter is known.",
        Cell("Hosts up", _of(f"count({silent()} == 0)", f"count({silent()})", rank=f"max({silent()})")),
        Cell(
            "GPUs read",
            _of(
                f"count({read})",
                f"sum({listed} or {unlisted})",
                rank=f"max(2 * ({unread} or {unlisted} ^ 0) or {released} or 0 * {read})",
            ),
        ),
        label=WORDS,
        texts=STEP,
        size=Size(7, 3),
    )


def _of(those: str, everything: str, rank: str) -> str:
    """How many of how many, as words, after the rank of their color: ``2|3 of 4``."""
    those = f'count_values("those", {those} or 0 * {everything})'
    everything = f'count_values("all", {everything})'
    both = f'label_join({those} * on () group_left (all) {everything}, "number", " of ", "those", "all")'
    ranked = f'count_values("rank", {rank})'
    return f'label_join({both} * on () group_left (rank) {ranked}, "{WORDS}", "|", "rank", "number")'


WORDS = "words"


def _tiles() -> tuple[PanelBuilder, ...]:
    """All counts are of the GPUs that the exporters know now, whether they answer or not."""
    fault, warning = limits((1, BAD), base=PLAIN), limits((1, WATCH), base=PLAIN)
    judged, verdicts = bottleneck(), gpu(GPU_VERDICT.name)
    missing = f"sum(clamp_min({by_host(host('gpu_devices', _PCI))} - {by_host(host('gpu_devices', _NVML))}, 0))"
    busy = f"avg({gpu('instance_gpu:gpu_busy:ratio5m')})"
    return (
        strip(
            "GPUs in trouble",
            "Of the hosts that are up. Missing: on the PCI bus, but not listed by the driver. To drain: with a "
            "critical finding; take them, or their hosts, out of service. To watch: with a warning, worth a ticket and "
            "not a page. No data: no exporter answers.",
            Cell("Missing", missing, steps=fault),
            Cell("To drain", _count(f"{verdicts} == {GPU_VERDICT.value_of('drain')}", verdicts), steps=fault),
            Cell("To watch", _count(f"{verdicts} == {GPU_VERDICT.value_of('watch')}", verdicts), steps=warning),
            size=Size(10, 3),
        ),
        strip(
            "Work of the GPUs",
            "Held up: by heat, power, clocks, their link, a hang or their host, or sick. Busy: mean over all. No data: "
            "no exporter answers.",
            Cell("Held up", _count(f"{judged} {_LIMITED}", judged), steps=warning),
            Cell("Busy, 5 min", busy, unit="percentunit", decimals=0),
            size=Size(7, 3),
        ),
    )


_PCI = 'source="pci"'
_NVML = 'source="nvml"'


def _count(those: str, of: str) -> str:
    """A count that is 0 if nothing matches, but has no value if the underlying series don't exist."""
    return f"count({those}) or 0 * count({of})"


def _classes() -> PanelBuilder:
    return lines(
        "GPUs by bottleneck",
        "How many GPUs are in each class. A band that widens on many hosts at once points at what they share: "
        "storage, network, power or the room. No data: no GPU is judged.",
        Query(f'count_values("rank", {bottleneck()})', "{{rank}}"),
        unit="none",
        size=Size(9, 7),
        stacked=True,
        names={str(rank): (name, color) for rank, name, color in BOTTLENECK},
    )


def _worst_hosts() -> PanelBuilder:
    judged = f"0 * count by ({TARGET}) ({bottleneck()})"
    return table_of(
        "Worst hosts",
        "Hosts that are down first, then those to drain, then to watch, with the worst class on each and how many GPUs "
        "are held up. Since: when it was last scraped, or its oldest critical finding or warning. "
        "Gone: no longer scraped; retired, or lost by service discovery. Start at the top; click a host to diagnose "
        "it. No data: no exporter is known.",
        HOST,
        Column("Verdict", expr=worst_hosts(host_state()), texts=HOST_STATE, width=80),
        ago(
            "Since",
            expr=worst_hosts(f"1000 * ({silent_since()})\nor {when(f'min by ({TARGET}) ({_SERIOUS})')}"),
            absent=NO_LABEL,
            width=120,
        ),
        Column("Worst", expr=worst_hosts(f"min by ({TARGET}) ({bottleneck()})"), texts=BOTTLENECK, width=122),
        Column(
            "Held up",
            expr=worst_hosts(f"count by ({TARGET}) ({bottleneck()} {_LIMITED}) or {judged}"),
            steps=limits((1, WATCH)),
            width=84,
        ),
        ago(
            "Maintenance ends",
            expr=f"1000 * ({worst_hosts(by_host(host('instance:gpu_maintenance:until')))})",
            absent=NO_LABEL,
            width=136,
        ),
        sort=("-Verdict", "Worst"),
        size=Size(12, 8),
        filterable=False,
    )


def _worst_gpus() -> PanelBuilder:
    busy = by_gpu(gpu("instance_gpu:gpu_busy:ratio5m"))
    return table_of(
        "Worst GPUs",
        "GPUs to drain first, then those to watch, those that are not read, and by bottleneck. GPUs of hosts that are "
        "down are not here: their host is in the table before. Click a GPU for its details. No data: no GPU is "
        "known.",
        HOST,
        GPU,
        Column("Known", expr=worst_gpus(by_gpu(gpu("gpu_info"))), hidden=True),
        Column("Verdict", expr=worst_gpus(gpu_state()), texts=GPU_STATE, width=80),
        Column("Bottleneck", expr=worst_gpus(by_gpu(bottleneck())), texts=BOTTLENECK, width=122),
        Column("Busy, 5 min", expr=worst_gpus(busy), unit="percentunit", decimals=0, width=116),
        sort=("-Verdict", "Bottleneck"),
        size=Size(12, 8),
        filterable=False,
    )


def _maintenance() -> PanelBuilder:
    ends = f"max by ({TARGET}, reason, source) ({host('gpu_host_maintenance_until_timestamp_seconds')})"
    return table_of(
        "In maintenance",
        "Hosts of which no alert fires and that are not drained until then. No data: no exporter reports one; cordoned "
        "nodes and hosts that are down are in the table of the worst hosts.",
        HOST,
        Column("Reason", label="reason"),
        Column("By", label="source"),
        ago("Ends", expr=f"1000 * topk({MOST_ROWS}, {ends})"),
        sort="Ends",
        size=Size(24, 5),
    )


def _repeat_offenders() -> PanelBuilder:
    return table_of(
        "Repeat offenders",
        "Faults within the last 30 days, by board and by slot. The same fault on one board in any slot: "
        "replace the board. On several boards in one slot: inspect slot, riser, power and cooling. No data: no GPU had "
        "a fault twice in 30 days, or the exporters do not keep incidents.",
        HOST,
        GPU_OR_HOST,
        Column("Slot", label="pci_bus_id"),
        Column("Fault", label="kind"),
        Column("On this board", expr=_repeated(_INCIDENTS, 'by="board"'), steps=limits((2, WATCH), base=GRAY)),
        Column("In this slot", expr=_repeated(_INCIDENTS, 'by="slot"'), steps=limits((2, WATCH), base=GRAY)),
        Column("Boards in this slot", expr=_repeated("gpu_incident_boards_recent"), steps=limits((2, BAD), base=GRAY)),
        sort=("-On this board", "-In this slot"),
        size=Size(24, 8),
    )


_INCIDENTS = "gpu_incidents_recent"
_MONTH = 'days="30"'


def _repeated(metric: str, matchers: str = "") -> str:
    by = f"{TARGET}, gpu, pci_bus_id, kind"
    of_month = ", ".join(filter(None, (matchers, _MONTH)))
    most_often = f"topk({MOST_ROWS}, max by ({by}) ({gpu(_INCIDENTS, _MONTH)}))"
    return only(f"max by ({by}) ({gpu(metric, of_month)})", by, most_often)


_SERIOUS = present('severity=~"critical|warning"')


def _exporters() -> PanelBuilder:
    successes = host("gpu_exporter_collector_success")
    failed = f"count by ({TARGET}) ({successes} == 0) or 0 * count by ({TARGET}) ({successes})"
    trouble = f"(100 * {silent()} + on ({TARGET}) ({failed}) or 100 * {silent()})"

    def shown(expr: str) -> str:
        return only(expr, TARGET, f"topk({MOST_ROWS}, {trouble})")

    return table_of(
        "Exporters",
        "Whether each exporter is up, has its GPUs, receives Xids and serves real readings. Gone: a target no longer. "
        "Simulated readings outside a drill: remove --simulate. No data: no exporter is known.",
        HOST,
        Column("Status", expr=shown(silent()), texts=SILENT),
        Column(
            "Simulated", expr=shown(by_host(host("gpu_exporter_simulated"))), texts=((0, "no", GOOD), (1, "yes", INFO))
        ),
        Column("Released", expr=shown(by_host(host("gpu_exporter_gpus_released"))), texts=WATCH_IF_YES),
        Column("Xid sources", expr=shown(f"sum by ({TARGET}) ({host('gpu_exporter_xid_source_up')})")),
        Column("Failing collectors", expr=shown(failed), steps=limits((1, WATCH))),
        sort=("-Status", "-Failing collectors", "-Released"),
        size=Size(12, 8),
    )


def _collectors() -> PanelBuilder:
    return lines(
        "Slowest collector",
        "How long the slowest collector of each host took. Rising: the driver responds slowly, as it often does before "
        f"it hangs. Of more than {MOST_SERIES} hosts: the slowest. No data: no exporter answers.",
        Query(most(f"max by ({TARGET}) ({host('gpu_exporter_slowest_collector_seconds')})"), OF_HOST),
        unit="s",
        size=Size(12, 8),
    )
