"""GPU fleet & topology: differences between GPUs and hosts that should be alike."""

from __future__ import annotations

from dashboards.board import Row
from dashboards.diagnosis_machine import power_limit
from dashboards.palette import GOOD, WATCH
from dashboards.panels import Query, Size, lines
from dashboards.selectors import TARGET, by_gpu, by_host, gpu, gpu_or_host, host
from dashboards.tables import GPU, HOST, Column, table_of
from dashboards.value_mappings import ON


def differences() -> Row:
    return Row(
        "Differences",
        table_of(
            "GPUs that differ from their model",
            "GPUs whose power limit or expected link differs from the median of their model in their cluster, "
            "among the selected hosts. Make them alike, or keep a job on GPUs of one kind.",
            HOST,
            GPU,
            Column("Power limit", expr=by_gpu(_unlike("gpu_power_limit_watts")), unit="watt"),
            Column("Expected width", expr=by_gpu(_unlike("gpu_pcie_link_expected_width"))),
            Column("Expected gen", expr=by_gpu(_unlike("gpu_pcie_link_expected_generation"))),
            size=Size(12, 8),
            empty="No data: none differs",
        ),
        table_of(
            "Drift from the baseline",
            "Hosts and GPUs against the baseline recorded when they were healthy. Repair the host, or record a new "
            "baseline if the change was intended. No data: no host has a baseline.",
            HOST,
            GPU,
            Column("Field", label="field"),
            Column(
                "Differs",
                expr=f"max by ({TARGET}, gpu, field) ({gpu_or_host('gpu_baseline_mismatch')})",
                texts=((0, "no", GOOD), (1, "yes", WATCH)),
            ),
            sort="-Differs",
            size=Size(12, 8),
        ),
        table_of(
            "Settings",
            "Settings that should be the same on all hosts of a job.",
            HOST,
            GPU,
            Column("Persistence", expr=by_gpu(gpu("gpu_persistence_mode")), texts=ON),
            Column("MIG", expr=by_gpu(gpu("gpu_mig_mode")), texts=ON),
            Column("ECC", expr=by_gpu(gpu("gpu_ecc_mode")), texts=ON),
            Column("Power limit of default", expr=by_gpu(power_limit()), unit="percentunit"),
            size=Size(8, 7),
        ),
        table_of(
            "Versions",
            "Driver, CUDA and exporter of each host.",
            HOST,
            Column("Driver", label="driver_version"),
            Column("CUDA", label="cuda_version"),
            Column("Exporter", label="version"),
            Column(
                "Known", expr=f"max by ({TARGET}, driver_version, cuda_version) ({host('gpu_driver_info')})", width=70
            ),
            Column("Runs", expr=f"max by ({TARGET}, version) ({host('gpu_exporter_build_info')})", width=70),
            Column("IOMMU", expr=by_host(host("gpu_host_iommu_active")), texts=ON),
            size=Size(8, 7),
        ),
        lines(
            "Drivers in use",
            "Hosts on each driver version. More than one version in a job is a risk; a change on the day the trouble "
            "began is a suspect.",
            Query(f"count by (cluster, driver_version) ({host('gpu_driver_info')})", "{{cluster}} {{driver_version}}"),
            unit="none",
            size=Size(8, 7),
        ),
        lines(
            "Firing alerts by name",
            "How many of each are firing. Many hosts at once: look for what they share.",
            Query(f"count by (cluster, alertname) ({host('ALERTS', _FIRING)})", "{{cluster}} {{alertname}}"),
            unit="none",
            size=Size(12, 8),
        ),
    )


def _unlike(metric: str, matchers: str = "") -> str:
    """Values that differ from the median for their model in their cluster."""
    labeled = f"{gpu(metric, matchers)} * on ({TARGET}, gpu, uuid) group_left (name) {_MODEL}"
    return f"({labeled}) != on (cluster, name) group_left () quantile by (cluster, name) (0.5, {labeled})"


_FIRING = 'alertstate="firing"'


_MODEL = f"group by ({TARGET}, gpu, uuid, name) ({gpu('gpu_info')})"
