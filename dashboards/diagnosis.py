"""GPU fast diagnosis, for incidents: a verdict per step, bottleneck and findings per GPU, a collapsed row per step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from grafana_foundation_sdk.models.common import VisibilityMode

from dashboards.board import Board, Row
from dashboards.diagnosis_machine import held_back, path, sick
from dashboards.host import blocked_processes, busiest_cpus, disk_busy, kernel_log, network_utilization, pressure
from dashboards.judgment import findings, gpus_lost, time_lost
from dashboards.palette import GOOD, GRAY, WATCH
from dashboards.panels import Cell, PanelBuilder, Query, Size, limits, lines, panel_id, timeline, worded_strip
from dashboards.selectors import (
    MOST_ROWS,
    MOST_SERIES,
    OF_HOST,
    TARGET,
    age,
    alerts,
    bottleneck,
    bottleneck_in,
    by_gpu,
    by_host,
    fewest,
    gpu,
    host,
    host_legend,
    known,
    legend,
    most,
    only,
    power_of_limit,
    worst,
)
from dashboards.steps import COUNTED, RUNBOOKS_URL, SEEN, SICK, SOFTWARE, STARVED, STEPS, TUNE, Step, alerts_of
from dashboards.tables import GPU, HOST, Column, table_of
from dashboards.value_mappings import BOTTLENECK, BOUND, SEVERITY, STEP, UP, Texts, by_severity
from gpu_triage.read.exporter.judgment import GPU_COMPUTE_BOUND

UID = "gpu-triage-diagnosis"
VERDICTS: Final = "Verdict of each step"
WHO: Final = "who"
"""Label with the words of a verdict."""
MOST_ALERTS = 300
RULES_ANSWER = 'ALERTS{cluster=~"$cluster|", alertname="GpuTriageWatchdog", alertstate="firing"}'
"""An alert that always fires: without it the rules aren't running, and half of each verdict is missing.

It has a cluster label only if each cluster has its own rules.
"""


def board() -> Board:
    """Build the dashboard: a first screen of 1080 pixels that loads at once, and a collapsed row for each step."""
    return Board(
        uid=UID,
        title="GPU fast diagnosis",
        description="Why is this GPU job slow or failing? Read the verdicts from left to right; the first that is not "
        "OK is where to start: click it, or unfold the row of its number below. More about the machine is in GPU "
        "host. Where several Prometheus servers share the hosts, choose the data source that scrapes this one.",
        since="3h",
        owners=True,
        runbooks=True,
        rows=(
            Row("", *_first_screen()),
            _watched(),
            sick(),
            held_back(),
            path(),
            starved(),
            software(),
            tune(),
            Row("Cost of the incident", gpus_lost(Size(12, 9)), time_lost(Size(12, 9)), folded=True),
        ),
    )


def _first_screen() -> tuple[PanelBuilder, ...]:
    return (_verdicts(), _bottleneck(), findings(Size(14, 10)), _alerts(), *_work())


def _verdicts() -> PanelBuilder:
    pace = Cell(
        "Job steps per second",
        f"sum({host('instance_job_name:gpu_job_steps:rate5m')})",
        unit="ops",
        steps=limits(base=GRAY),
        decimals=2,
    )
    return worded_strip(
        VERDICTS,
        "Which GPUs are suspect at each step of the playbook now, else hosts: one by name, several by number. Red: at "
        "least one critical; amber: warnings. OK: judged, none. N/A: cannot be judged here. Read from left to right, "
        "and click a step for what to look at, and for the playbook. GPU-bound work is no fault. Look at the job's "
        "steps too, as the job counts them: if they have not slowed down, nothing is slow. No data: the rules do not "
        "run, or there is no exporter.",
        *(Cell(step.title, verdict_query(step), links=_links(step)) for step in STEPS),
        pace,
        label=WHO,
        texts=STEP,
        size=Size(24, 4),
    )


def _links(step: Step) -> tuple[tuple[str, str], ...]:
    look = f"/d/{UID}?viewPanel={panel_id(step.key_panel)}&${{__url_time_range}}&${{__all_variables}}"
    return (("Look at it", look), (step.decide, step.url))


def verdict_query(step: Step) -> str:
    """A series with the step's suspects in the label `who`; OK for none, N/A if it can't be judged.

    One series for GPUs and one for hosts that are suspect as a whole; none without rules or exporter. What is before
    the bar is how bad the worst of them is.
    """
    suspects = _named(_suspects(step), of_gpus=bool(step.classes))
    judged = _said("0|OK" if step is not TUNE else "n|none", f"count({_judged(step)})")
    known = _said("-|N/A", f"count({host('gpu_exporter_build_info')} or {host('up')})")
    return f"(\n{suspects}\nor on ()\n{judged}\nor on ()\n{known}\n)\nand on ()\n{RULES_ANSWER}"


def _said(word: str, expr: str) -> str:
    return f'label_replace({expr}, "{WHO}", "{word}", "", "")'


def _suspects(step: Step) -> str:
    """Suspect GPUs and hosts: 1 for a warning, 2 if critical; GPU-bound ones: 3, which is not a fault.

    A GPU is suspect if its bottleneck is one of the step's classes, or if one of the step's alerts about it fires. An
    alert about a whole host counts unless some of its GPUs are in these classes.
    """
    names = "|".join(alerts_of(step))
    firing = f'alertstate="firing", severity=~"{"|".join(sorted(COUNTED))}", alertname=~"{names}"'
    if not step.classes:
        return f"max by ({TARGET}) ({_how_bad(host('ALERTS', firing))} or 1 + ({host('up')} == 0))"
    waiting = f"group by ({TARGET}, gpu) {bottleneck_in(step.classes)}"
    if step is TUNE:
        return f"3 * {waiting}"
    held = f"2 * {waiting}" if step is SICK else waiting
    whole_host = f'label_replace(group by ({TARGET}) ({waiting}), "gpu", "", "", "")'
    alerted = f"{_how_bad(f'({alerts(firing)})')}\n  unless on ({TARGET}, gpu) {whole_host}"
    return f"max by ({TARGET}, gpu) (\n  {held}\n  or\n  ({alerted})\n)"


def _how_bad(alerts_firing: str) -> str:
    """Alerts with the value 2 if they are critical, 1 if they are warnings."""
    ranks = (_ranked("critical", 1), _ranked("warning", 0))
    return f"{alerts_firing}\n  + on (severity) group_left () ({' or '.join(ranks)})"


def _ranked(severity: str, more: int) -> str:
    return f'label_replace(vector({more}), "severity", "{severity}", "", "")'


def _named(suspects: str, *, of_gpus: bool) -> str:
    """The suspects as words, after the worst one's rank: ``2|node-7 GPU 5`` for one, ``1|6 GPUs`` for several."""
    kinds = f'label_replace(\n{suspects},\n"kind", "hosts", "", "")'
    kinds = f'label_replace({kinds}, "kind", "GPUs", "gpu", ".+")' if of_gpus else kinds
    # VictoriaMetrics garbles a label that is joined from itself: each step has a label of its own.
    worst_one = f'label_replace(topk by (kind) (1, {kinds}), "named", "$1", "instance", "(.*)")'
    if of_gpus:
        worst_one = f'label_join({worst_one}, "of_gpu", " GPU ", "instance", "gpu")'
        worst_one = f'label_replace({worst_one}, "named", "$1", "of_gpu", "(.* GPU .+)")'
    number = f'count_values by (kind) ("number", count by (kind) ({kinds}))'
    several = f'label_join({worst_one}\n* on (kind) group_left (number) {number}, "several", " ", "number", "kind")'
    said = f'label_replace({several}, "named", "$1", "several", "((?:[2-9]|[0-9]{{2,}}) .+)")'
    return f'label_join(count_values by (named) ("rank", {said}), "{WHO}", "|", "rank", "named")'


def _judged(step: Step) -> str:
    """The series a step judges, limited to what the judge has judged; a step based on alerts alone needs no judge."""
    evidence = gpu(step.judged_by) if step.per_gpu else host(step.judged_by)
    labels = f"{TARGET}, gpu" if step.per_gpu else TARGET
    return f"{evidence} and on ({labels}) {bottleneck()}" if step.classes else evidence


def _bottleneck() -> PanelBuilder:
    return timeline(
        "Bottleneck of each GPU",
        "Which resource limits each GPU, one class at any moment, within a minute of the cause. Green: the GPU "
        "itself is the limit, as it should be. Look for the GPU that changes color first, and for events marked at "
        f"that time. With more than {MOST_SERIES} GPUs: the worst. No data: no exporter answers, or it has judged no "
        "GPU yet.",
        worst(bottleneck()),
        texts=BOTTLENECK,
        size=Size(10, 10),
        show_value=VisibilityMode.AUTO,
    )


def _alerts() -> PanelBuilder:
    firing = 'alertstate="firing", '
    severity = by_severity(lambda matcher: f"max by ({TARGET}, gpu, alertname, action) ({alerts(firing + matcher)})")
    watchdog = f"4 * max by (alertname, action) ({RULES_ANSWER})"
    return table_of(
        "Firing alerts",
        "Alerts firing now, the most severe first; click a name to open its runbook. The watchdog always fires. No "
        "data: the rules do not run.",
        Column("Severity", expr=f"bottomk({MOST_ALERTS}, {severity}\nor\n{watchdog})", texts=SEVERITY, width=86),
        Column("Alert", label="alertname", link=("Runbook", f"{RUNBOOKS_URL}/${{__value.raw}}"), width=186),
        Column("Host", label="instance", min_width=112),
        GPU,
        Column("Action", label="action", width=118),
        sort="Severity",
        size=Size(9, 7),
    )


def _work() -> tuple[PanelBuilder, ...]:
    size = Size(5, 7)
    return (
        lines(
            "Step rate of each job",
            "Step rate as each job reports it. Find the moment at which it drops, and see which color above changes "
            "just before. A job at its usual pace is not slow, whatever else shows. No data: no job counts its steps "
            "(gpu_job_steps_total).",
            Query(most(host("instance_job_name:gpu_job_steps:rate5m")), host_legend("{{job_name}} ({{owner}})")),
            unit="ops",
            size=size,
        ),
        lines(
            "Busy share of each GPU",
            "Share of the last 5 minutes in which the GPU worked. Low while a job runs: it waits, see steps 4 and 5. "
            "A high value does not prove progress: a GPU spinning at a barrier is busy too. Compare it with its power. "
            "No data: the rules do not run, or the GPUs do not report it.",
            worst(gpu("instance_gpu:gpu_busy:ratio5m")),
            unit="percentunit",
            size=size,
            top=1,
            line_at=(0.8, GOOD),
            low_is_worse=True,
        ),
        lines(
            "GPU power relative to limit",
            "Power tells real work from busy waiting. Busy but low power: ranks wait for each other. One GPU below its "
            "peers at the same load: look for throttling. No data: the GPUs do not report power and its limit.",
            worst(power_of_limit()),
            unit="percentunit",
            size=size,
            low_is_worse=True,
        ),
    )


def _watched() -> Row:
    published = host("gpu_exporter_last_publication_timestamp_seconds")
    stale = host("gpu_exporter_collector_stale_seconds")
    return Row(
        SEEN.row,
        timeline(
            SEEN.key_panel,
            "Whether Prometheus could scrape each host. If all other panels have a gap at the same time, monitoring "
            "failed, not necessarily the work: see whether the host is up. No data: no exporter was scraped in the "
            "time shown.",
            Query(fewest(f"{host('up')}\nand on ({TARGET})\n{known()}"), OF_HOST),
            texts=UP,
            size=Size(12, 7),
        ),
        lines(
            "Age of overdue values",
            "How long ago the worst overdue collector of each host succeeded: its values are withdrawn and panels go "
            "empty, the driver may be hanging. Else the age of the page, a second or so. No data: no exporter "
            "answers.",
            Query(most(f"max by ({TARGET}) ({stale})\nor {age(by_host(published))}"), OF_HOST),
            unit="s",
            size=Size(12, 7),
            line_at=(45, WATCH),
        ),
        folded=True,
    )


_WAITING: Final[Texts] = ((0, "not waiting", GRAY), *BOTTLENECK)
HALF = Size(12, 8)


def starved() -> Row:
    return Row(
        STARVED.row,
        timeline(
            STARVED.key_panel,
            "Which resource of the host each GPU waits for: a job holds the GPU and gets less than 0.7 of it, "
            "while that resource is scarce. The other panels of this row, and the dashboard GPU host, explain nothing "
            "unless a GPU waits. No data: no GPU is judged.",
            worst(by_gpu(f"{bottleneck_in(STARVED.classes)} or 0 * {bottleneck()}")),
            texts=_WAITING,
            size=HALF,
        ),
        disk_busy(HALF),
        pressure(),
        busiest_cpus(),
        network_utilization(),
        folded=True,
    )


def software() -> Row:
    return Row(
        SOFTWARE.row,
        table_of(
            SOFTWARE.key_panel,
            "Who is on each GPU. Two processes on one GPU and none on its neighbor: a wrong CUDA_VISIBLE_DEVICES. "
            "Memory held and no use for a long time: a hang, or a process left behind. Of more than "
            f"{3 * MOST_ROWS}: those with the most memory. No data: no process, or the exporter cannot see processes.",
            HOST,
            GPU,
            Column("Process", label="process"),
            Column("PID", label="pid", width=90),
            Column("User", label="user"),
            Column("Namespace", label="workload_namespace"),
            Column("Pod", label="workload_pod"),
            Column("Slurm job", label="slurm_job_id"),
            Column("Memory", expr=_largest(_with_owner("gpu_process_memory_bytes")), unit="bytes", width=90),
            Column(
                "SM use",
                expr=_largest(_with_owner("gpu_process_sm_utilization_ratio")),
                unit="percentunit",
                decimals=0,
                width=80,
            ),
            sort="-Memory",
            size=Size(16, 8),
        ),
        timeline(
            "Allocated but idle GPUs",
            "A process holds the GPU and uses less than 0.05 of it. For hours: free it, or find out what the job "
            "waits for. No data: the rules do not run, or nothing tells who has a GPU.",
            worst(gpu("instance_gpu:gpu_allocated_idle:active")),
            texts=((0, "no", GOOD), (1, "idle", WATCH)),
            size=Size(8, 8),
        ),
        lines(
            "SM clock of busy GPUs, against the median of their model",
            "Below 0.9: this GPU is slower than its peers and every synchronous step waits for it. See step 2 for "
            "what holds it back. No data: no GPU is busy.",
            worst(
                f"{_busy_clock(gpu)}\n/ on ({TARGET}, name) group_left ()\n"
                f"quantile by ({TARGET}, name) (0.5, {_busy_clock(host)})"
            ),
            unit="percentunit",
            floor=None,
            line_at=(0.9, WATCH),
            low_is_worse=True,
        ),
        kernel_log(Size(16, 7)),
        blocked_processes(),
        folded=True,
    )


def tune() -> Row:
    return Row(
        TUNE.row,
        lines(
            TUNE.key_panel,
            "Share of SMs with work, from GPM on Hopper and later. A busy GPU with little here runs small kernels "
            "or waits at barriers: use larger batches, fuse kernels, or look at the collectives. No data: these GPUs "
            "do not report it, or the driver has no GPM.",
            worst(gpu("gpu_sm_active_ratio")),
            unit="percentunit",
            top=1,
        ),
        lines(
            "Tensor core and memory activity",
            "Tensor cores low while SMs are active: mixed precision is off, or the shapes do not suit them. Memory "
            "above half, of about 0.8 that can be reached: memory bandwidth limits the job. Moving fewer bytes per "
            "step helps, more FLOPS do not. No data: these GPUs do not report it, or the driver has no GPM.",
            Query(worst(gpu("gpu_tensor_active_ratio")), legend("tensor")),
            Query(worst(gpu("gpu_dram_active_ratio")), legend("memory")),
            unit="percentunit",
            top=1,
        ),
        timeline(
            "Compute- or memory-bound",
            "What bounds the kernels of GPUs in class compute, where they report it: Hopper and later, or DCGM. "
            "Neither: small kernels, or gaps between them. No data: no GPU is in class compute and reports it.",
            worst(gpu(GPU_COMPUTE_BOUND.name)),
            texts=BOUND,
            size=Size(8, 7),
        ),
        folded=True,
    )


def _with_owner(metric: str) -> str:
    owner = "user, workload_namespace, workload_pod, slurm_job_id"
    return (
        f"sum by ({TARGET}, gpu, pid, process, {owner}) (\n"
        f"  {gpu(metric)}\n  * on ({TARGET}, gpu, uuid, pid) group_left ({owner})\n"
        f"  {gpu('gpu_process_info')}\n)"
    )


def _largest(expr: str) -> str:
    by = f"{TARGET}, gpu, pid"
    return only(expr, by, f"topk({3 * MOST_ROWS}, max by ({by}) ({gpu('gpu_process_memory_bytes')}))")


def _busy_clock(select: Callable[..., str]) -> str:
    """Median SM clock of each busy GPU, with its model; the GPU may be at its idle clock a fifth of the time."""
    clock = select("gpu_clock_hertz", 'clock="sm"')
    return (
        f"(quantile_over_time(0.5, {clock}[5m])\n* on ({TARGET}, gpu, uuid) group_left (name) "
        f"group by ({TARGET}, gpu, uuid, name) ({select('gpu_info')})\nand on ({TARGET}, gpu, uuid) "
        f"rate({select('gpu_busy_seconds_total')}[$__rate_interval]) >= 0.8)"
    )
