"""How queries select series: always by the variables, and the worst of thousands of GPUs."""

from collections.abc import Iterable
from typing import Final

from gpu_triage.read.exporter.judgment import (
    GPU_BOTTLENECK,
    GPU_BOTTLENECK_SECONDS_TOTAL,
    GPU_HOST_VERDICT,
    GPU_VERDICT,
)

TARGET: Final = "cluster, job, instance"
"""Labels for joining and grouping by host. The cluster is a target label; a missing label equals an empty one."""

CLUSTER: Final = 'cluster=~"$cluster"'
HOST: Final = f'{CLUSTER}, job=~"$job", instance=~"$instance"'
GPU: Final = f'{HOST}, gpu=~"$gpu"'

OWNER: Final = 'workload_namespace=~"$namespace", workload_pod=~"$pod", slurm_job_id=~"$slurm_job", user=~"$user"'
"""For series with the owner of a GPU, if the dashboard has variables for it (Board.owners)."""

MOST_SERIES: Final = 40
"""The most GPUs that fit legibly in a panel."""

MOST_ROWS: Final = 20
"""The most rows in a table, so that the worst need no scrolling through the others."""

SHORT_NAME: Final = "(.*?)(?:${domain:raw})?(?::[0-9]+)?"
"""Of an instance: without the port, and without the domain if all hosts share one (a hidden variable)."""

OF_HOST: Final = "{{cluster}} {{host}}"
"""Legend with the host's short name, used in all panels; Grafana prints nothing for a missing label."""

LEGEND: Final = f"{OF_HOST} GPU {{{{gpu}}}}"
"""Legend with host and GPU."""

LOST: Final = 'class!~"compute|idle"'
"""Classes that count as lost time: the GPU is neither limited by its own work nor idle."""


def cluster(metric: str, matchers: str = "") -> str:
    """Series of the selected clusters that are recorded without host labels."""
    return _select(metric, CLUSTER, matchers)


def host(metric: str, matchers: str = "") -> str:
    return _select(metric, HOST, matchers)


def gpu(metric: str, matchers: str = "") -> str:
    return _select(metric, GPU, matchers)


def gpu_or_host(metric: str) -> str:
    """Series of the selected GPUs, and series about a selected host as a whole."""
    return _select(metric, f'{HOST}, gpu=~"$gpu|"', "")


def alerts(matchers: str) -> str:
    """Alerts about the selected GPUs, with the GPU's index, and alerts about a selected host as a whole.

    While the driver or exporter is down, an alert continues; then the index comes from findings, of now or of before.
    """
    indices = f"9 + {gpu('gpu_up')} or 9 + {gpu('gpu_finding')} or last_over_time({gpu('gpu_finding')}[15m])"
    numbers = f"group by ({TARGET}, uuid, gpu) (topk by ({TARGET}, uuid) (1, {indices}))"
    of_gpus, of_hosts = (host("ALERTS", f"{which}, {matchers}") for which in ('uuid!=""', 'uuid=""'))
    return f"{of_gpus}\n* on ({TARGET}, uuid) group_left (gpu) {numbers}\nor\n{of_hosts}"


def legend(what: str) -> str:
    return f"{LEGEND} {what}"


def host_legend(what: str) -> str:
    return f"{OF_HOST} {what}"


def bottleneck() -> str:
    return gpu(GPU_BOTTLENECK.name)


def bottleneck_in(classes: Iterable[str]) -> str:
    """Selected GPUs in one of these classes; classes with consecutive values are merged into one comparison."""
    runs: list[tuple[int, int]] = []
    for value in sorted(GPU_BOTTLENECK.value_of(name) for name in classes):
        if runs and runs[-1][1] == value - 1:
            runs[-1] = (runs[-1][0], value)
        else:
            runs.append((value, value))
    compared = [f"== {first}" if first == last else f">= {first} <= {last}" for first, last in runs]
    return "(" + " or ".join(f"{bottleneck()} {each}" for each in compared) + ")"


def both_ways() -> str:
    """Distance between the selected GPUs and all others; the exporter exposes each pair only once."""
    mirrored = f'gpu_topology_info{{{HOST}, peer_gpu=~"$gpu"}}'
    swapped = f'label_replace(label_replace({mirrored}, "from", "$1", "gpu", "(.*)"), "gpu", "$1", "peer_gpu", "(.*)")'
    return f'{gpu("gpu_topology_info")} or label_replace({swapped}, "peer_gpu", "$1", "from", "(.*)")'


def lost_seconds() -> str:
    """Seconds lost by each selected GPU in the time range, by class."""
    return f"increase({gpu(GPU_BOTTLENECK_SECONDS_TOTAL.name, LOST)}[$__range])"


def only(expr: str, by: str, chosen: str) -> str:
    """Keep only the series with the labels `by` of one that `chosen` keeps, which is a topk or bottomk."""
    return f"({expr})\nand on ({by})\n{chosen}"


def worst(expr: str) -> str:
    """Keep only the series of the GPUs with the worst bottleneck in the time range.

    With `@ end()`, the selection is the same for all points, so that lines don't come and go; up to MOST_SERIES GPUs,
    all are kept.
    """
    worst_value = f"min_over_time({bottleneck()}[$__range] @ end())"
    return only(expr, f"{TARGET}, gpu", f"bottomk({MOST_SERIES}, {worst_value})")


def worst_gpus(expr: str) -> str:
    """Only the worst GPUs now, for tables: those to drain, then those to watch; those without a verdict last."""
    known_gpus = f"{gpu(GPU_VERDICT.name)} or -1 * {gpu('gpu_up')}"
    return only(expr, f"{TARGET}, gpu", f"topk({MOST_ROWS}, {by_gpu(known_gpus)})")


def worst_hosts(expr: str, number: int = MOST_ROWS) -> str:
    """Only that many of the worst hosts now, for tables."""
    known_hosts = f"{host(GPU_HOST_VERDICT.name)} or -1 * {host('gpu_exporter_build_info')}"
    return only(expr, TARGET, f"topk({number}, {by_host(known_hosts)})")


def most(expr: str) -> str:
    """Only the series that were highest in the time range, chosen once for the whole picture."""
    return _extreme(expr, "topk", "max")


def fewest(expr: str) -> str:
    """Only the series that were lowest in the time range, chosen once for the whole picture."""
    return _extreme(expr, "bottomk", "min")


def _extreme(expr: str, choice: str, value: str) -> str:
    return f"({expr})\nand\n{choice}({MOST_SERIES}, {value}_over_time(({expr})[$__range:1m] @ end()))"


def short(expr: str) -> str:
    """The series with the short name of their host as a label."""
    return derived(expr, "host", "instance", SHORT_NAME)


def derived(expr: str, label: str, source: str, pattern: str, text: str = "$1") -> str:
    """The series with a label that is the first group of a pattern of another one, or a text with it.

    VictoriaMetrics garbles a new label if the pattern does not match.
    """
    return f'label_replace({expr}, "{label}", "{text}", "{source}", "{pattern}")'


def age(selected: str) -> str:
    """Age of these timestamps by the clock of their own host, which may be wrong; the rules do the same."""
    now = f"{host('gpu_exporter_time_seconds')} or {host('gpu_exporter_last_publication_timestamp_seconds')}"
    return f"max by ({TARGET}) ({now})\n- on ({TARGET}) group_right ()\n{selected}"


def when(selected: str) -> str:
    """These timestamps in milliseconds by the server's clock, for columns that show relative times."""
    return f"1000 * (time() - ({age(selected)}))"


def known() -> str:
    """Targets that were exporters at any time in the range: a target that is down has no other series."""
    return f"last_over_time({host('gpu_exporter_build_info')}[$__range] @ end())"


def rate(selected: str, window: str = "$__rate_interval") -> str:
    return f"rate({selected}[{window}])"


def in_15m(selected: str) -> str:
    return f"increase({selected}[15m])"


def risen(selected: str, window: str = "15m") -> str:
    """Like increase(), of a counter that is absent until its first event: one that is new counts as it is."""
    return (
        f"((max_over_time({selected}[{window}]) unless {selected} offset {window}) or increase({selected}[{window}]))"
    )


def power_of_limit() -> str:
    return f"{gpu('gpu_power_watts')} / on ({TARGET}, gpu, uuid) group_left () ({gpu('gpu_power_limit_watts')} > 0)"


def link_of_expected() -> str:
    """PCIe link bandwidth of each selected GPU relative to the expected one; each generation doubles it."""
    width, generation = (
        f"{gpu(f'gpu_pcie_link_{what}')} {operator} on ({TARGET}, gpu, uuid) group_left () "
        f"{gpu(f'gpu_pcie_link_expected_{what}')}"
        for what, operator in (("width", "/"), ("generation", "-"))
    )
    return f"({width}) * on ({TARGET}, gpu, uuid) group_left () 2 ^ ({generation})"


def by_gpu(expr: str) -> str:
    """One series per GPU, with only cluster, host and index as labels, which table columns are joined by."""
    return f"max by ({TARGET}, gpu) ({expr})"


def by_host(expr: str) -> str:
    return f"max by ({TARGET}) ({expr})"


def _select(metric: str, always: str, matchers: str) -> str:
    return f"{metric}{{{always}{', ' if matchers else ''}{matchers}}}"
