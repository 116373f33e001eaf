"""How queries select series: always by the variables, and the worst of thousands of GPUs."""

import re
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

RULES_ANSWER: Final = 'ALERTS{cluster=~"$cluster|", alertname="GpuTriageWatchdog", alertstate="firing"}'
"""An alert that always fires: without it the rules aren't running, and half of each verdict is missing.

It has a cluster label only if each cluster has its own rules.
"""


def cluster(metric: str, matchers: str = "") -> str:
    """Series of the selected clusters that are recorded without host labels."""
    return _select(metric, CLUSTER, matchers)


def host(metric: str, matchers: str = "") -> str:
    return _select(metric, HOST, matchers)


def gpu(metric: str, matchers: str = "") -> str:
    return _select(metric, GPU, matchers)


def alerts(matchers: str) -> str:
    """Alerts about the selected GPUs, with the GPU's index, and alerts about a selected host as a whole."""
    return numbered(host("ALERTS", matchers))


def numbered(series: str) -> str:
    """Series about GPUs by UUID, with the index of each selected one, and those without an index or a GPU.

    While the driver or exporter is down, an alert continues; then the index comes from findings, of now or of before.
    """
    up, found = (gpu(metric, _OF_GPU) for metric in _INDEXED)
    indices = f"9 + {up} or 9 + {found} or last_over_time({found}[15m])"
    numbers = f"group by ({TARGET}, uuid, gpu) (topk by ({TARGET}, uuid) (1, {indices}))"
    up, found = (host(metric, _OF_GPU) for metric in _INDEXED)
    return (
        f"({series})\n* on ({TARGET}, uuid) group_left (gpu) {numbers}\n"
        f"or ({series}) unless on ({TARGET}, uuid) ({up} or last_over_time({found}[15m]))"
    )


_OF_GPU: Final = 'uuid!=""'
_INDEXED: Final = ("gpu_up", "gpu_finding")


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


def chosen_from(expr: str, number: int) -> str:
    """What the query chooses so many rows of, by its first topk or bottomk; "" if it does not."""
    _, found, rest = expr.partition(f"k({number}, ")
    depth = 1 if found else 0
    for part in _PARTS.finditer(rest):
        depth += {"(": 1, ")": -1}.get(part[0], 0)
        if depth <= 0:
            return rest[: part.start()] if found else ""
    return ""


_PARTS: Final = re.compile(r"""[()]|`[^`]*`|"(?:[^"\\]|\\.)*\"""")


def worst(expr: str) -> str:
    """Keep only the series of the GPUs with the worst bottleneck in the time range.

    With `@ end()`, the selection is the same for all points, so that lines don't come and go; up to MOST_SERIES GPUs,
    all are kept.
    """
    return only(expr, f"{TARGET}, gpu", _worst_of_each())


def _worst_of_each() -> str:
    return f"bottomk({MOST_SERIES}, min_over_time({bottleneck()}[$__range] @ end()))"


def worst_first(expr: str) -> str:
    """Like `worst`, for timelines, which keep the order of the series: by how bad the GPU was, then by its number.

    Servers sort series by their labels, so both are labels that come before all others, with the same number of digits.
    """
    padded = f'label_replace({expr}, "_unit", "0$1", "gpu", "(.)")'
    padded = f'label_replace({padded}, "_unit", "$1", "gpu", "(..+)")'
    return placed(padded, f"{TARGET}, gpu", f"{_PLACES} + {_worst_of_each()}")


def placed(expr: str, by: str, place: str) -> str:
    """The series sorted by `place`, which becomes their first label: its values need the same number of digits."""
    return f'({expr})\n* on ({by}) group_left (_place)\ncount_values by ({by}) ("_place", {place})'


_PLACES: Final = 100


def worst_gpus(expr: str) -> str:
    """Only the worst GPUs now, for tables: those to drain, then those to watch, then those that are not read."""
    state = by_gpu(f"{gpu(GPU_VERDICT.name)} or {UNREAD} * {gpu('gpu_up')} ^ 0")
    return only(expr, f"{TARGET}, gpu", f"topk({MOST_ROWS}, {state})")


def worst_hosts(expr: str, number: int = MOST_ROWS) -> str:
    """Only that many of the worst hosts now, for tables; those that are down before all others."""
    return only(expr, TARGET, f"topk({number}, {host_state()})")


def most(expr: str) -> str:
    """Only the series that were highest in the time range, chosen once for the whole picture."""
    return f"({expr})\nand\ntopk({MOST_SERIES}, max_over_time(({expr})[$__range:1m] @ end()))"


def lowest_first(expr: str) -> str:
    """Only the hosts with the lowest state in the time range, those first, for timelines; see `worst_first`."""
    lowest = f"bottomk({MOST_SERIES}, min_over_time(({expr})[$__range:1m] @ end()))"
    return placed(expr, TARGET, f"{_PLACES} + {lowest}")


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
    """Targets that were exporters at any time in the range, or by the rules: one that is down has no other series."""
    seen = f"last_over_time({host('gpu_exporter_build_info')}[$__range] @ end())"
    return f"({seen} or {host('instance:gpu_exporter_target:up')})"


def silent() -> str:
    """Whether each known host answers (0), is gone (1) or down (2).

    It is down if its last scrape failed. It is gone if that succeeded and it is a target no longer: retired, or lost by
    service discovery, which the rules cannot tell apart either.
    """
    up = host("up")
    return f"(2 - {by_host(f'2 * {up} or last_over_time({up}[$__range] @ end())')} and on ({TARGET}) {known()})"


def silent_since() -> str:
    """When each host that is silent was last scraped, as Unix time, by the rules, else by its last samples."""
    by_rules = by_host(host("instance_code:gpu_exporter_target:down_since"))
    last = by_host(f"max_over_time(timestamp({host('gpu_exporter_build_info')})[$__range:1m])")
    return f"({by_rules} or {last}) and on ({TARGET}) {silent()} > 0"


DOWN, GONE, UNREAD, RELEASED = 3, 1.5, 0.5, 0.25
"""Beside the values of a verdict, those of hosts and GPUs without one. The higher, the worse."""


def host_state() -> str:
    """The verdict on each known host, or why it has none."""
    released = f"{RELEASED} * {by_host(_released())}"
    verdict = by_host(host(GPU_HOST_VERDICT.name))
    answers = by_host(host("gpu_exporter_build_info"))
    return f"({GONE} * ({silent()} > 0) or {verdict} or {released} or {UNREAD} * {answers})"


def gpu_state() -> str:
    """The verdict on each GPU that the exporters know, or why it has none."""
    verdict, listed = by_gpu(gpu(GPU_VERDICT.name)), by_gpu(gpu("gpu_up"))
    return f"({verdict} or {RELEASED} + 0 * {listed} and on ({TARGET}) {_released()} or {UNREAD} + 0 * {listed})"


def _released() -> str:
    return f"{host('gpu_exporter_gpus_released')} == 1"


def unread_gpus(of_hosts: str = "") -> str:
    """1 for each GPU that was known in the range and is not read now; `of_hosts`: ``and`` or ``unless`` released."""
    seen = by_gpu(f"last_over_time({gpu('gpu_up')}[$__range] @ end()) ^ 0")
    unread = f"{seen} unless on ({TARGET}, gpu) {gpu('gpu_up')} == 1"
    return f"({unread} {of_hosts} on ({TARGET}) {_released()})" if of_hosts else unread


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


def by_gpu(expr: str, *more: str) -> str:
    """One series per GPU, with only cluster, host, index and `more` as labels, which table columns are joined by."""
    return f"max by ({', '.join((TARGET, 'gpu', *more))}) ({expr})"


def by_host(expr: str) -> str:
    return f"max by ({TARGET}) ({expr})"


def _select(metric: str, always: str, matchers: str) -> str:
    return f"{metric}{{{always}{', ' if matchers else ''}{matchers}}}"
