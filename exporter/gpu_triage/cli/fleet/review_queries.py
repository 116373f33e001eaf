"""The queries of the review, on series that the rules record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gpu_triage.cli.fleet.query import Selection
from gpu_triage.judge.findings.limits import LIMITS
from gpu_triage.read.incidents.metrics import GPU_INCIDENTS_RECENT

MOST_ROWS: Final = 20
"""The most rows per table."""
HOUR_SECONDS: Final = 3600
JOULES_PER_KWH: Final = 3.6e6
OWNER_LABELS: Final = "cluster, workload_namespace, user, account"
GPU_LABELS: Final = "cluster, job, instance, gpu, uuid"


def daily_queries(selection: Selection) -> Mapping[str, str]:
    """The queries that return one value per day, by name."""
    where = str(selection)
    shares = f"instance_gpu_name:gpu_busy:last5m{where}[1d]"
    # Shares are recorded every 5 minutes, so each covers 300 s.
    seen, busy = f"300 * count_over_time({shares})", f"300 * sum_over_time({shares})"
    lost = f"instance_gpu_class:gpu_bottleneck_seconds:increase1d{where}"
    named = f"* on ({GPU_LABELS}) group_left (name) topk by ({GPU_LABELS}) (1, last_over_time({shares}) ^ 0)"
    owned = {f"{what} by owner": f"owner:gpu_{what}_hours:sum1d" for what in ("allocated", "busy")}
    if where:
        # Recorded without host labels, so a selection has to compute the sum itself.
        share = f"instance_gpu_owner:gpu_allocated:share{where}"
        used = f"{share} * on ({GPU_LABELS}) group_left () max by ({GPU_LABELS}) (instance_gpu:gpu_busy:ratio5m{where})"
        owned = {
            "allocated by owner": f"sum_over_time({share}[1d]) / 60",
            "busy by owner": f"sum_over_time(({used})[1d:1m]) / 60",
        }
    return {
        "gpus": f"count(group by ({GPU_LABELS}) ({seen}))",
        "observed": f"sum({seen}) / {HOUR_SECONDS}",
        "busy": f"sum({busy}) / {HOUR_SECONDS}",
        "idle": f"300 * sum(sum_over_time(instance_gpu:gpu_allocated_idle:active{where}[1d])) / {HOUR_SECONDS}",
        "energy": f"sum(increase(instance_gpu:gpu_energy_joules:last5m{where}[1d])) / {JOULES_PER_KWH:.0f}",
        "lost": f"sum by (class) ({lost}) / {HOUR_SECONDS}",
        **{name: f"sum by ({OWNER_LABELS}) ({hours})" for name, hours in owned.items()},
        "observed by model": f"sum by (name) ({seen}) / {HOUR_SECONDS}",
        "busy by model": f"sum by (name) ({busy}) / {HOUR_SECONDS}",
        "lost by model": f"sum by (name) ({lost} {named}) / {HOUR_SECONDS}",
        "p95 by model": f"avg by (name) (quantile_over_time(0.95, {shares}))",
    }


def host_query(selection: Selection, days: int) -> str:
    """The hosts that lost the most hours to a class over the whole period."""
    # Subqueries align to midnight; a range one hour short of the period excludes the midnight before it.
    window = f"[{days * 24 - 1}h:1d]"
    recorded = f"instance_class:gpu_hours_lost:sum1d{selection}"
    return f"topk({MOST_ROWS}, sum by (cluster, job, instance, class) (sum_over_time({recorded}{window})))"


def offender_query(selection: Selection, window: str) -> str:
    """The boards with recurring incidents of one kind within 30 or 7 days, at any time in the window, such as 30d."""

    def most(within: int) -> str:
        which = selection.with_matcher(f'by="board",days="{within}",kind!="reset"')
        return f"max by ({GPU_LABELS}, kind) (max_over_time({GPU_INCIDENTS_RECENT.name}{which}[{window}]))"

    month, week = (f"{LIMITS['gpu.repeat_offender'][name].value:.0f}" for name in ("in_30_days", "in_7_days"))
    return f"topk({MOST_ROWS}, {most(30)} >= {month} or {most(30)} and {most(7)} >= {week})"
