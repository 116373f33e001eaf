"""A review of the last hours from the exporters' own series, for the time before the rules have recorded a day."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Final

import yaml

from gpu_triage.alerting.files import rule_files
from gpu_triage.cli.fleet.client import PrometheusClient
from gpu_triage.cli.fleet.query import Selection
from gpu_triage.cli.fleet.review import Review, assembled
from gpu_triage.cli.fleet.review_queries import GPU_LABELS, HOUR_SECONDS, JOULES_PER_KWH, MOST_ROWS, OWNER_LABELS
from gpu_triage.errors import PrometheusUnavailable
from gpu_triage.read.gpu.identity import GPU_INFO

_STEP: Final = 300
"""Resolution in seconds, as that of the recorded series."""
_BUSY: Final = "instance_gpu:gpu_busy:ratio5m"
_SHARE: Final = "instance_gpu_owner:gpu_allocated:share"
_IDLE: Final = "instance_gpu:gpu_allocated_idle:active"


@cache
def _recorded() -> Mapping[str, str]:
    """The expressions of the recorded series, by name."""
    groups = yaml.safe_load(rule_files()["recording.yml"])["groups"]
    return {rule["record"]: str(rule["expr"]).strip() for group in groups for rule in group["rules"]}


def first_look_queries(selection: Selection, seconds: int) -> Mapping[str, str]:
    """As `daily_queries`, over so many seconds of raw series; ``hosts`` is as `host_query`."""
    where = str(selection)
    rules = _recorded()
    # A second less: a window of whole steps would have one more, in Prometheus 2.
    window = f"[{seconds - 1}s:{_STEP}s]"
    only = f" and on ({GPU_LABELS}) last_over_time({GPU_INFO.name}{where}[10m])" if where else ""
    busy = f"(({rules[_BUSY]}){only})"
    share = f"(({rules[_SHARE]}){only})"
    idle = f"(({rules[_IDLE].replace(f'last_over_time({_BUSY}[2m])', f'({rules[_BUSY]})')}){only})"
    # One series for each GPU: its model, or "" if it was never read.
    seen = f"{_STEP} * max by ({GPU_LABELS}) (count_over_time({busy}{window}))"
    worked = f"{_STEP} * max by ({GPU_LABELS}) (sum_over_time({busy}{window}))"
    own = selection.with_matcher('class!~"compute|idle"')
    lost = f"increase(gpu_bottleneck_seconds_total{own}[{seconds}s])"
    model = f"last_over_time({GPU_INFO.name}{where}[{seconds}s])"
    named = f"* on ({GPU_LABELS}) group_left (name) topk by ({GPU_LABELS}) (1, {model})"
    used = f"{share} * on ({GPU_LABELS}) group_left () max by ({GPU_LABELS}) ({busy})"
    hours = f"* {_STEP} / {HOUR_SECONDS}"
    most = f"max by ({GPU_LABELS}) (quantile_over_time(0.95, {busy}{window}))"
    return {
        "gpus": f"count({seen})",
        "observed": f"sum({seen}) / {HOUR_SECONDS}",
        "busy": f"sum({worked}) / {HOUR_SECONDS}",
        "idle": f"{_STEP} * sum(sum_over_time({idle}{window})) / {HOUR_SECONDS}",
        "energy": f"sum(increase(gpu_energy_joules_total{where}[{seconds}s])) / {JOULES_PER_KWH:.0f}",
        "lost": f"sum by (class) ({lost}) / {HOUR_SECONDS}",
        "allocated by owner": f"sum by ({OWNER_LABELS}) (sum_over_time({share}{window})) {hours}",
        "busy by owner": f"sum by ({OWNER_LABELS}) (sum_over_time(({used}){window})) {hours}",
        "observed by model": f"sum by (name) (({seen}) {named}) / {HOUR_SECONDS}",
        "busy by model": f"sum by (name) (({worked}) {named}) / {HOUR_SECONDS}",
        "lost by model": f"sum by (name) ({lost} {named}) / {HOUR_SECONDS}",
        "p95 by model": f"avg by (name) ({most} {named})",
        "hosts": f"topk({MOST_ROWS}, sum by (cluster, job, instance, class) ({lost}) / {HOUR_SECONDS})",
    }


def first_look(client: PrometheusClient, selection: Selection, now: float, seconds: float) -> Review:
    """The review of the last seconds before this time, to whole steps of 5 minutes.

    Raises:
        PrometheusUnavailable: the server doesn't respond, or has no series of exporters in this time.
    """
    end, length = now // _STEP * _STEP, int(seconds // _STEP * _STEP)
    found = {name: client.over(query, end, end, _STEP) for name, query in first_look_queries(selection, length).items()}
    if not found["observed"]:
        raise PrometheusUnavailable(
            f"{client.url} has no GPU activity{f' of hosts {selection}' if str(selection) else ''} in this time; "
            "let it scrape the exporters for ten minutes first"
        )
    return assembled(
        client, selection, [end], found, hosts=found["hosts"], window=f"{length}s", step_seconds=float(length)
    )
