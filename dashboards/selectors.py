"""How queries pick their series: always by the variables, and of thousands of GPUs the worst."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from gpu_triage.subjects.judgement import GPU_BOTTLENECK, GPU_BOTTLENECK_SECONDS_TOTAL

TARGET: Final = "cluster, job, instance"
"""What queries join and group hosts by. A cluster is a label of targets; an absent label equals an empty one."""

CLUSTER: Final = 'cluster=~"$cluster"'
HOST: Final = f'{CLUSTER}, job=~"$job", instance=~"$instance"'
GPU: Final = f'{HOST}, gpu=~"$gpu"'

OWNER: Final = 'workload_namespace=~"$namespace", workload_pod=~"$pod", slurm_job_id=~"$slurm_job", user=~"$user"'
"""Of series that say whose a GPU is, where the dashboard has variables for it (Board.owners)."""

MOST_SERIES: Final = 40
"""GPUs that a panel can show legibly."""

OF_HOST: Final = "{{cluster}} {{instance}}"
"""Which host a line is about, everywhere; Grafana writes nothing for a label that is absent."""

LEGEND: Final = f"{OF_HOST} GPU {{{{gpu}}}}"
"""Which GPU."""

LOST: Final = 'class!~"compute|idle"'
"""Classes in which a GPU loses time: something other than its own work sets the pace, and it is not free."""


def cluster(metric: str, matchers: str = "") -> str:
    """The series of the chosen clusters that are recorded without the labels of hosts."""
    return _select(metric, CLUSTER, matchers)


def host(metric: str, matchers: str = "") -> str:
    """The series of the chosen hosts."""
    return _select(metric, HOST, matchers)


def gpu(metric: str, matchers: str = "") -> str:
    """The series of the chosen GPUs."""
    return _select(metric, GPU, matchers)


def gpu_or_host(metric: str) -> str:
    """The series of the chosen GPUs, and those that concern a chosen host as a whole."""
    return _select(metric, f'{HOST}, gpu=~"$gpu|"', "")


def alerts(matchers: str) -> str:
    """The alerts about the chosen GPUs, with the number that each has, and those about a chosen host as a whole.

    Where the driver is away or the exporter down, an alert goes on; the number is then that of the findings.
    """
    now = f"({gpu('gpu_up')} or {gpu('gpu_finding')})"
    before = f"last_over_time({gpu('gpu_finding')}[15m]) unless on ({TARGET}, uuid) {now}"
    numbers = f"group by ({TARGET}, uuid, gpu) (topk by ({TARGET}, uuid) (1, {now} or {before}))"
    of_gpus, of_hosts = (host("ALERTS", f"{which}, {matchers}") for which in ('uuid!=""', 'uuid=""'))
    return f"{of_gpus}\n* on ({TARGET}, uuid) group_left (gpu) {numbers}\nor\n{of_hosts}"


def legend(what: str) -> str:
    """The name of a series if a GPU has several of them in the panel."""
    return f"{LEGEND} {what}"


def host_legend(what: str) -> str:
    """The name of a series if a host has several of them in the panel."""
    return f"{OF_HOST} {what}"


def bottleneck() -> str:
    """The class of each chosen GPU, as a value."""
    return gpu(GPU_BOTTLENECK.name)


def bottleneck_in(classes: Iterable[str]) -> str:
    """The chosen GPUs that are in one of these classes; classes with consecutive values make one comparison."""
    runs: list[tuple[int, int]] = []
    for value in sorted(GPU_BOTTLENECK.value_of(name) for name in classes):
        if runs and runs[-1][1] == value - 1:
            runs[-1] = (runs[-1][0], value)
        else:
            runs.append((value, value))
    compared = [f"== {first}" if first == last else f">= {first} <= {last}" for first, last in runs]
    return "(" + " or ".join(f"{bottleneck()} {each}" for each in compared) + ")"


def both_ways() -> str:
    """The distance between the chosen GPUs and all others: the exporter tells that of each pair once."""
    mirrored = f'gpu_topology_info{{{HOST}, peer_gpu=~"$gpu"}}'
    swapped = f'label_replace(label_replace({mirrored}, "from", "$1", "gpu", "(.*)"), "gpu", "$1", "peer_gpu", "(.*)")'
    return f'{gpu("gpu_topology_info")} or label_replace({swapped}, "peer_gpu", "$1", "from", "(.*)")'


def lost_seconds() -> str:
    """Seconds that each chosen GPU lost in the time shown, by class."""
    return f"increase({gpu(GPU_BOTTLENECK_SECONDS_TOTAL.name, LOST)}[$__range])"


def worst(expr: str) -> str:
    """Those series of an expression that are of the GPUs with the worst bottleneck in the time shown.

    `@ end()` makes the choice once for the whole picture, so that lines do not come and go; with up to MOST_SERIES GPUs
    it leaves all.
    """
    worst_value = f"min_over_time({bottleneck()}[$__range] @ end())"
    return f"({expr})\nand on ({TARGET}, gpu)\nbottomk({MOST_SERIES}, {worst_value})"


def age(selected: str) -> str:
    """How long ago each of these timestamps was, by the clock of its own host, as in the rules: that may be wrong."""
    now = f"{host('gpu_exporter_time_seconds')} or {host('gpu_exporter_last_publication_timestamp_seconds')}"
    return f"max by ({TARGET}) ({now})\n- on ({TARGET}) group_right ()\n{selected}"


def when(selected: str) -> str:
    """These timestamps in milliseconds by the server's clock, for columns that show how long ago they were."""
    return f"1000 * (time() - ({age(selected)}))"


def rate(selected: str, window: str = "$__rate_interval") -> str:
    """Increase a second."""
    return f"rate({selected}[{window}])"


def in_15m(selected: str) -> str:
    """Increase in 15 minutes."""
    return f"increase({selected}[15m])"


def power_of_limit() -> str:
    """Power of each chosen GPU as a share of its limit."""
    return f"{gpu('gpu_power_watts')} / on ({TARGET}, gpu, uuid) group_left () ({gpu('gpu_power_limit_watts')} > 0)"


def link_of_expected() -> str:
    """Bandwidth of the PCIe link of each chosen GPU as a share of what it should have: each generation doubles it."""
    width, generation = (
        f"{gpu(f'gpu_pcie_link_{what}')} {operator} on ({TARGET}, gpu, uuid) group_left () "
        f"{gpu(f'gpu_pcie_link_expected_{what}')}"
        for what, operator in (("width", "/"), ("generation", "-"))
    )
    return f"({width}) * on ({TARGET}, gpu, uuid) group_left () 2 ^ ({generation})"


def by_gpu(expr: str) -> str:
    """One series a GPU, with nothing but its cluster, host and index: what the columns of a table are joined by."""
    return f"max by ({TARGET}, gpu) ({expr})"


def by_host(expr: str) -> str:
    """One series a host."""
    return f"max by ({TARGET}) ({expr})"


def _select(metric: str, always: str, matchers: str) -> str:
    return f"{metric}{{{always}{', ' if matchers else ''}{matchers}}}"
