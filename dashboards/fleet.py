"""GPU fleet & topology: which hosts are worst, how GPUs are linked, and what differs from its peers."""

from __future__ import annotations

from dashboards.board import Board, Row
from dashboards.diagnosis_machine import link_columns
from dashboards.panels import PanelBuilder, Query, Size, limits, lines, tile
from dashboards.selectors import by_gpu, by_host, gpu, gpu_or_host, host
from dashboards.tables import GPU, HOST, Column, matrix, table_of
from dashboards.words import ALLOWED, BOTTLENECK, ON, UP, YES

TILE = Size(4, 4)
DIAGNOSIS = (
    "Diagnose this host",
    (
        "/d/gpu-triage-diagnosis?${datasource:queryparam}&var-job=$job"
        "&var-instance=${__data.fields.Host}&${__url_time_range}"
    ),
)
BAD = 13
"""Classes ranked below this one are findings; communication and what follows may be the job's nature."""


def board() -> Board:
    """The dashboard."""
    return Board(
        uid="gpu-triage-fleet",
        title="GPU fleet & topology",
        description="All GPU hosts: the worst first, how their GPUs are linked, and where one differs from its peers.",
        since="6h",
        refresh="1m",
        rows=(
            Row("", (*_tiles(), _classes(), _worst_hosts(), _worst_gpus())),
            Row("Links", (_links(), _peers(), _levels(), _adapters())),
            Row("What differs", (_drift(), _baseline(), _settings(), _versions(), _drivers(), _alerts_by_name())),
            Row("Exporters", (_exporters(), _collectors())),
        ),
    )


def _tiles() -> tuple[PanelBuilder, ...]:
    findings = f"count({gpu('instance_gpu:gpu_bottleneck:rank')} < {BAD}) or 0 * count({_rank()})"
    return (
        tile("Hosts", "Hosts whose exporter answers.", f"count({host('up')} == 1 and on (job, instance) {_known()})",
             unit="none", size=TILE),
        tile("GPUs", "GPUs that answer.", f"count({gpu('gpu_up')} == 1)", unit="none", size=TILE),
        tile("GPUs that do not answer", "Lost or stalled. Any: see the worst GPUs below.",
             f"count({gpu('gpu_up')} == 0) or 0 * count({gpu('gpu_up')})", unit="none", size=TILE,
             steps=limits((1, "dark-red"))),
        tile("GPUs missing", "GPUs that the PCI bus has and the driver does not show, on all chosen hosts.",
             f"sum(clamp_min({by_host(host('gpu_devices', _PCI))} - {by_host(host('gpu_devices', _NVML))}, 0))",
             unit="none", size=TILE, steps=limits((1, "dark-red"))),
        tile("GPUs with a finding", "GPUs that something other than their own work limits.", findings, unit="none",
             size=TILE, steps=limits((1, "orange"))),
        tile("Busy GPUs", "Mean busy share of all chosen GPUs.", f"avg({gpu('instance_gpu:gpu_busy:ratio5m')})",
             unit="percentunit", size=TILE, decimals=0, graph=True),
    )  # fmt: skip


_PCI = 'source="pci"'
_NVML = 'source="nvml"'


def _rank() -> str:
    return gpu("instance_gpu:gpu_bottleneck:rank")


def _known() -> str:
    return f"last_over_time({host('gpu_exporter_build_info')}[$__range] @ end())"


def _classes() -> PanelBuilder:
    return lines(
        "GPUs by bottleneck",
        "How many GPUs each class holds. A band that widens on many hosts at once is shared: storage, network, power "
        "or the room.",
        [Query(f'count_values("rank", {_rank()})', "{{rank}}")],
        unit="none",
        size=Size(24, 8),
        stacked=True,
        names={str(rank): (name, colour) for rank, name, colour in BOTTLENECK},
    )


def _worst_hosts() -> PanelBuilder:
    return table_of(
        "Worst hosts",
        "The class that is worst on each host, how many GPUs it and others hold back, and critical alerts. Start at "
        "the top; a click diagnoses the host.",
        (
            Column("Host", label="instance", link=DIAGNOSIS),
            Column("Worst", expr=f"min by (job, instance) ({_rank()})", words=BOTTLENECK),
            Column(
                "GPUs with a finding",
                expr=f"count by (job, instance) ({_rank()} < {BAD}) or 0 * count by (job, instance) ({_rank()})",
                steps=limits((1, "orange")),
            ),
            Column(
                "Critical alerts",
                expr=f"count by (job, instance) ({gpu_or_host('ALERTS', _CRITICAL)})\n"
                f"or 0 * count by (job, instance) ({host('gpu_exporter_build_info')})",
                steps=limits((1, "dark-red")),
            ),
            Column("GPUs", expr=by_host(host("gpu_devices", _NVML))),
            Column("On the bus", expr=by_host(host("gpu_devices", _PCI))),
            Column("Driver", expr=by_host(host("gpu_driver_up")), words=UP),
            Column(
                "Busy",
                expr=f"avg by (job, instance) ({gpu('instance_gpu:gpu_busy:ratio5m')})",
                unit="percentunit",
                decimals=0,
            ),
        ),
        sort="Worst",
        size=Size(12, 10),
    )


def _worst_gpus() -> PanelBuilder:
    return table_of(
        "Worst GPUs",
        "Every chosen GPU, the worst bottleneck first. A click opens everything about it.",
        (
            HOST,
            GPU,
            Column("Model", label="name"),
            Column("Known", expr=f"max by (job, instance, gpu, name) ({_model()})", width=70),
            Column("Bottleneck", expr=by_gpu(_rank()), words=BOTTLENECK),
            Column("Busy", expr=by_gpu(gpu("instance_gpu:gpu_busy:ratio5m")), unit="percentunit", decimals=0),
            Column("Power of limit", expr=by_gpu(gpu("instance_gpu:gpu_power:ratio_to_limit")), unit="percentunit"),
            Column("Temperature", expr=by_gpu(gpu("gpu_temperature_celsius", 'sensor="gpu"')), unit="celsius"),
        ),
        sort="Bottleneck",
        size=Size(12, 10),
    )


def _model() -> str:
    return gpu("instance_gpu_name:gpu_info:present")


_CRITICAL = 'alertstate="firing", severity="critical"'


def _links() -> PanelBuilder:
    return table_of(
        "PCIe links",
        "Every link, the narrowest share first: width and generation now, expected, and what the slot can do. A slot "
        "below the others of its model: the card sits in the wrong place.",
        (*link_columns(), Column("NUMA node", expr=by_gpu(gpu("gpu_numa_node")))),
        sort="Share",
        size=Size(12, 10),
    )


def _peers() -> PanelBuilder:
    read = gpu("gpu_p2p_status", 'capability="read", status="ok"')
    refused = gpu("gpu_p2p_status", 'capability="read", status!~"ok|unknown"')
    unknown = gpu("gpu_p2p_status", 'capability="read", status="unknown"')
    pairs = f"max by (job, instance, gpu, peer_gpu) ({read} or 0 * {refused} or 2 * {unknown})"
    return matrix(
        "Direct access between GPUs",
        "Whether the GPU of the row may read the memory of the GPU of the column. Refused between neighbours of one "
        "model: copies go through the host; look for ACS, IOMMU or virtualisation.",
        _from_gpu(pairs),
        row="from",
        column="peer_gpu",
        words=ALLOWED,
        size=Size(12, 10),
    )


def _levels() -> PanelBuilder:
    level = gpu("gpu_topology_info")
    ranked = " or ".join(f'{rank} * {level[:-1]}, level="{name}"}}' for rank, name, _ in _LEVELS)
    return matrix(
        "Distance between GPUs",
        "What lies between two GPUs. Put the ranks of one job on near GPUs; sys crosses the sockets.",
        _from_gpu(f"max by (job, instance, gpu, peer_gpu) ({ranked})"),
        row="from",
        column="peer_gpu",
        words=_LEVELS,
        size=Size(12, 9),
    )


_LEVELS = (
    (0, "internal", "green"),
    (1, "pix", "green"),
    (2, "pxb", "light-green"),
    (3, "phb", "yellow"),
    (4, "node", "orange"),
    (5, "sys", "red"),
)


def _from_gpu(pairs: str) -> str:
    """The pairs with the host and index of the first GPU as one label: the name of a row."""
    return f'label_join({pairs}, "from", " GPU ", "instance", "gpu")'


def _adapters() -> PanelBuilder:
    return table_of(
        "Nearest network adapters",
        "How near each adapter is to each GPU: use pix or pxb for GPUDirect.",
        (
            HOST,
            GPU,
            Column("Adapter", label="nic"),
            Column("Level", label="level"),
            Column(
                "Reported", expr=f"max by (job, instance, gpu, nic, level) ({gpu('gpu_nic_topology_info')})", words=YES
            ),
        ),
        size=Size(12, 9),
    )


def _drift() -> PanelBuilder:
    return table_of(
        "GPUs unlike their model's others",
        "GPUs whose power limit or expected link differs from most of the same model among the chosen hosts. "
        "Make them alike, or keep a job within one kind.",
        (
            HOST,
            GPU,
            Column("Power limit", expr=by_gpu(_unlike("gpu_power_limit_watts")), unit="watt"),
            Column("Expected width", expr=by_gpu(_unlike("gpu_pcie_link_expected_width"))),
            Column("Expected gen", expr=by_gpu(_unlike("gpu_pcie_link_expected_generation"))),
        ),
        size=Size(12, 8),
        empty="No data: all are alike",
    )


def _unlike(metric: str, matchers: str = "") -> str:
    """Values that are not the median of their model."""
    labelled = f"{gpu(metric, matchers)} * on (job, instance, gpu, uuid) group_left (name) {_model()}"
    return f"({labelled}) != on (name) group_left () quantile by (name) (0.5, {labelled})"


def _baseline() -> PanelBuilder:
    return table_of(
        "Drift from the baseline",
        "Fields of hosts and GPUs against the baseline that was recorded while they were well. Repair the host, or "
        "record a new baseline when the change was meant. No data: no host has a baseline.",
        (
            HOST,
            GPU,
            Column("Field", label="field"),
            Column(
                "Differs",
                expr=f"max by (job, instance, gpu, field) ({gpu_or_host('gpu_baseline_mismatch')})",
                words=((0, "no", "green"), (1, "yes", "orange")),
            ),
        ),
        sort="Differs",
        descending=True,
        size=Size(12, 8),
    )


def _alerts_by_name() -> PanelBuilder:
    return lines(
        "Firing alerts by name",
        "How many of each fire. Many hosts at once: look for what they share.",
        [Query(f"count by (alertname) ({gpu_or_host('ALERTS', _FIRING)})", "{{alertname}}")],
        unit="none",
        size=Size(12, 8),
    )


_FIRING = 'alertstate="firing"'


def _drivers() -> PanelBuilder:
    return lines(
        "Drivers in use",
        "Hosts on each driver version. More than one in a job is a risk; a change on the day the trouble began is a "
        "suspect.",
        [Query(f"count by (driver_version) ({host('gpu_driver_info')})", "{{driver_version}}")],
        unit="none",
        size=Size(8, 7),
    )


def _settings() -> PanelBuilder:
    return table_of(
        "Settings",
        "Settings that should be the same on all hosts of a job.",
        (
            HOST,
            GPU,
            Column("Persistence", expr=by_gpu(gpu("gpu_persistence_mode")), words=ON),
            Column("MIG", expr=by_gpu(gpu("gpu_mig_mode")), words=ON),
            Column("ECC", expr=by_gpu(gpu("gpu_ecc_mode")), words=ON),
            Column(
                "Limit of default",
                expr=by_gpu(gpu("instance_gpu:gpu_power_limit:ratio_to_default")),
                unit="percentunit",
            ),
        ),
        size=Size(8, 7),
    )


def _versions() -> PanelBuilder:
    return table_of(
        "Versions",
        "Driver, CUDA and exporter of each host.",
        (
            HOST,
            Column("Driver", label="driver_version"),
            Column("CUDA", label="cuda_version"),
            Column("Exporter", label="version"),
            Column(
                "Known",
                expr=f"max by (job, instance, driver_version, cuda_version) ({host('gpu_driver_info')})",
                width=70,
            ),
            Column("Runs", expr=f"max by (job, instance, version) ({host('gpu_exporter_build_info')})", width=70),
            Column("IOMMU", expr=by_host(host("gpu_host_iommu_active")), words=ON),
        ),
        size=Size(8, 7),
    )


def _exporters() -> PanelBuilder:
    return table_of(
        "Exporters",
        "Whether each host is seen: it answers, holds its GPUs, hears of Xids, and serves real readings. Simulated "
        "readings on a host that is no drill: take --simulate away.",
        (
            HOST,
            Column("Answers", expr=by_host(host("up") + " and on (job, instance) " + _known()), words=UP),
            Column(
                "Simulated",
                expr=by_host(host("gpu_exporter_simulated")),
                words=((0, "no", "green"), (1, "yes", "blue")),
            ),
            Column(
                "Released",
                expr=by_host(host("gpu_exporter_gpus_released")),
                words=((0, "no", "green"), (1, "yes", "orange")),
            ),
            Column("Xid sources", expr=f"sum by (job, instance) ({host('gpu_exporter_xid_source_up')})"),
            Column(
                "Failing collectors",
                expr=f"count by (job, instance) ({host('gpu_exporter_collector_success')} == 0)\n"
                f"or 0 * count by (job, instance) ({host('gpu_exporter_collector_success')})",
                steps=limits((1, "orange")),
            ),
        ),
        sort="Answers",
        size=Size(12, 8),
    )


def _collectors() -> PanelBuilder:
    return lines(
        "Time of the slowest collector",
        "How long the slowest collector of each host took. Rising: the driver answers slowly, often before it hangs.",
        [Query(f"max by (job, instance) ({host('gpu_exporter_collector_duration_seconds')})", "{{instance}}")],
        unit="s",
        size=Size(12, 8),
    )
