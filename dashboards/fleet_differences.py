"""GPU fleet & topology: differences between GPUs and hosts that should be alike."""

from dashboards.board import Row
from dashboards.diagnosis_machine import power_limit
from dashboards.panels import Query, Size, lines
from dashboards.selectors import MOST_ROWS, TARGET, by_gpu, gpu, host, only
from dashboards.tables import CLUSTER, GPU, GPU_OR_HOST, HOST, Column, table_of
from dashboards.value_mappings import WATCH_IF_YES


def differences() -> Row:
    unlike = {
        ("Power limit", "watt"): _unlike("gpu_power_limit_watts"),
        ("Expected width", "none"): _unlike("gpu_pcie_link_expected_width"),
        ("Expected gen", "none"): _unlike("gpu_pcie_link_expected_generation"),
    }
    differ = f"topk({MOST_ROWS}, {' or '.join(unlike.values())})"
    return Row(
        "Differences",
        table_of(
            "GPUs that differ from their model",
            "GPUs whose power limit or expected link differs from the median of their model in their cluster, "
            "among the selected hosts. Make them alike, or keep a job on GPUs of one kind. No data: none differs, or "
            "is read.",
            HOST,
            GPU,
            *(Column(title, expr=only(expr, _GPU, differ), unit=unit) for (title, unit), expr in unlike.items()),
            size=Size(12, 8),
        ),
        table_of(
            "Drift from the baseline",
            "Hosts and GPUs against the baseline recorded when they were healthy. Repair the host, or record a new "
            "baseline if the change was intended. No data: no host has a baseline.",
            HOST,
            GPU_OR_HOST,
            Column("Field", label="field"),
            Column(
                "Differs", expr=f"topk({MOST_ROWS}, max by ({TARGET}, gpu, field) ({_MISMATCH}))", texts=WATCH_IF_YES
            ),
            sort="-Differs",
            size=Size(12, 8),
        ),
        table_of(
            "Settings",
            "How many GPUs have each value of the settings that should be the same on all hosts of a job; power limit: "
            "in percent of the default. The rarest first. With two values: see GPU detail for each. No data: no GPU is "
            "known.",
            CLUSTER,
            Column("Setting", label="setting"),
            Column("Value", label="value", width=90),
            Column("GPUs", expr=_settings(), width=90),
            sort=("Setting", "GPUs"),
            size=Size(8, 7),
        ),
        table_of(
            "Versions",
            "How many hosts have each combination of driver, CUDA and exporter. No data: no exporter answers.",
            CLUSTER,
            Column("Driver", label="driver_version"),
            Column("CUDA", label="cuda_version", width=80),
            Column("Exporter", label="version"),
            Column("Hosts", expr=_versions(), width=80),
            sort="-Hosts",
            size=Size(8, 7),
        ),
        lines(
            "Drivers in use",
            "Hosts on each driver version. More than one version in a job is a risk; a change on the day the trouble "
            "began is a suspect. No data: no driver answers.",
            Query(f"count by (cluster, driver_version) ({host('gpu_driver_info')})", "{{cluster}} {{driver_version}}"),
            unit="none",
            size=Size(8, 7),
        ),
        lines(
            "Firing alerts by name",
            "How many of each are firing. Many hosts at once: look for what they share. No data: no alert fires, or "
            "the rules do not run.",
            Query(f"count by (cluster, alertname) ({host('ALERTS', _FIRING)})", "{{cluster}} {{alertname}}"),
            unit="none",
            size=Size(12, 8),
        ),
    )


def _unlike(metric: str) -> str:
    """Values that differ from the median for their model in their cluster."""
    labeled = f"{gpu(metric)} * on ({TARGET}, gpu, uuid) group_left (name) {_MODEL}"
    median = f"quantile by (cluster, name) (0.5, {labeled})"
    return by_gpu(f"({labeled}) != on (cluster, name) group_left () {median}")


def _settings() -> str:
    """GPUs by setting and its value."""
    on_or_off = {"persistence mode": "gpu_persistence_mode", "MIG": "gpu_mig_mode", "ECC": "gpu_ecc_mode"}
    counted = []
    for setting, metric in on_or_off.items():
        values = f'count_values by (cluster) ("value", {gpu(metric)})'
        values = f'label_replace({values}, "value", "off", "value", "0")'
        values = f'label_replace({values}, "value", "on", "value", "1")'
        counted.append(f'label_replace({values}, "setting", "{setting}", "", "")')
    percent = f'count_values by (cluster) ("value", round(100 * {power_limit()}))'
    counted.append(f'label_replace({percent}, "setting", "power limit", "", "")')
    return "\nor\n".join(counted)


def _versions() -> str:
    exporters = f"group by ({TARGET}, version) ({host('gpu_exporter_build_info')})"
    drivers = f"group by ({TARGET}, driver_version, cuda_version) ({host('gpu_driver_info')})"
    both = f"{drivers} * on ({TARGET}) group_left (version) {exporters}"
    return f"count by (cluster, driver_version, cuda_version, version) ({both})"


_FIRING = 'alertstate="firing"'
_GPU = f"{TARGET}, gpu"
_MISMATCH = host("gpu_baseline_mismatch", 'gpu=~"$gpu|"')


_MODEL = f"group by ({TARGET}, gpu, uuid, name) ({gpu('gpu_info')})"
