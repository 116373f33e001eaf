"""GPU fast diagnosis, for incidents: a verdict per step, bottleneck and findings per GPU, a collapsed row per step."""

from __future__ import annotations

from grafana_foundation_sdk.models.common import VisibilityMode

from dashboards.board import Board, Row
from dashboards.diagnosis_host import software, starved, tune
from dashboards.diagnosis_machine import held_back, path, sick
from dashboards.judgment import findings, gpus_lost, time_lost
from dashboards.palette import BAD, GOOD, GRAY, INFO, WATCH
from dashboards.panels import PanelBuilder, Query, Size, limits, lines, panel_id, tile, timeline
from dashboards.selectors import (
    MOST_SERIES,
    OF_HOST,
    TARGET,
    age,
    alerts,
    bottleneck,
    bottleneck_in,
    by_host,
    gpu,
    host,
    host_legend,
    known,
    power_of_limit,
    worst,
)
from dashboards.steps import COUNTED, RUNBOOKS_URL, SEEN, STEPS, TUNE, Step, alerts_of
from dashboards.tables import GPU, NARROW_HOST, Column, table_of
from dashboards.value_mappings import BOTTLENECK, SEVERITY, STEP, UP, by_severity

UID = "gpu-triage-diagnosis"
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
        "OK is where to start: click it, or unfold the row of its number below. Where several Prometheus servers share "
        "the hosts, choose the data source that scrapes this one.",
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
    verdicts = (_verdict(step) for step in STEPS)
    return (*verdicts, _pace(), _bottleneck(), findings(Size(14, 10)), _alerts(), *_work())


def verdict_query(step: Step) -> str:
    """Number of suspect GPUs, 0 for none, -1 if it can't be judged; no value without rules or exporter.

    A GPU is suspect if its bottleneck is one of the step's classes. On a host without such GPUs, alerts count.
    """
    firing = ", ".join(
        ('alertstate="firing"', f'severity=~"{"|".join(sorted(COUNTED))}"', f'alertname=~"{"|".join(alerts_of(step))}"')
    )
    if step.classes:
        suspects = f"group by ({TARGET}, gpu) {bottleneck_in(step.classes)}"
        if step is not TUNE:
            suspects += (
                f"\n  or\n  (\n    group by ({TARGET}, gpu) ({alerts(firing)})\n"
                f"    unless on ({TARGET})\n    {suspects}\n  )"
            )
    else:
        suspects = f"group by ({TARGET}) ({host('ALERTS', firing)} or {host('up')} == 0)"
    return (
        f"(\n  count(\n  {suspects}\n  )\n"
        f"  or\n  0 * count({_judged(step)})\n"
        f"  or\n  0 * count({host('gpu_exporter_build_info')} or {host('up')}) - 1\n)\n"
        f"and on ()\n{RULES_ANSWER}"
    )


def _judged(step: Step) -> str:
    """The series a step judges, limited to what the judge has judged; a step based on alerts alone needs no judge."""
    evidence = gpu(step.judged_by) if step.per_gpu else host(step.judged_by)
    labels = f"{TARGET}, gpu" if step.per_gpu else TARGET
    return f"{evidence} and on ({labels}) {bottleneck()}" if step.classes else evidence


def _verdict(step: Step) -> PanelBuilder:
    return tile(
        step.title,
        f"{_counted(step)} N/A: cannot be judged here. No data: the rules do not run, or there is no exporter. "
        f"{step.decide}",
        verdict_query(step),
        unit="none" if step is TUNE else "suffix: suspect",
        size=Size(3, 4),
        texts=((-1, "N/A", GRAY), (0, "none", GRAY)) if step is TUNE else STEP,
        steps=limits((1, INFO)) if step is TUNE else limits((1, WATCH if step is SEEN else BAD)),
        links=(
            ("Look at it", f"/d/{UID}?viewPanel={panel_id(step.key_panel)}&${{__url_time_range}}&${{__all_variables}}"),
            ("What the playbook says", step.url),
        ),
    )


def _counted(step: Step) -> str:
    if step is SEEN:
        return "How many hosts are suspect now, because their exporter is down or in trouble. OK: none."
    if step is TUNE:
        return "How many GPUs are limited by nothing but their own work now."
    return (
        "How many GPUs are suspect at this step of the playbook now (hosts, if an alert is about a whole host). OK: "
        "judged, none."
    )


def _pace() -> PanelBuilder:
    return tile(
        "Job steps per second",
        "Step rate of all jobs on the selected hosts, as the jobs report it. Look here first: if it has not dropped, "
        "nothing is slow. No data: no job writes gpu_job_steps_total.",
        f"sum({host('instance_job_name:gpu_job_steps:rate5m')})",
        unit="ops",
        size=Size(3, 4),
        graph=True,
    )


def _bottleneck() -> PanelBuilder:
    return timeline(
        "Bottleneck of each GPU",
        "Which resource limits each GPU, one class at any moment, within a minute of the cause. Green: the GPU itself "
        "is the limit, as it should be. Look for the GPU that changes color first, and for events marked at that "
        f"time. With more than {MOST_SERIES} GPUs: the worst.",
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
        "Alerts firing now, the most severe first; click a name to open its runbook. The watchdog always fires: an "
        "empty table means that the rules do not run.",
        Column("Severity", expr=f"{severity}\nor\n{watchdog}", texts=SEVERITY, width=96),
        Column("Alert", label="alertname", link=("Runbook", f"{RUNBOOKS_URL}/${{__value.raw}}"), width=200),
        NARROW_HOST,
        GPU,
        Column("Action", label="action", width=128),
        sort="Severity",
        size=Size(9, 7),
        empty="The rules do not run",
    )


def _work() -> tuple[PanelBuilder, ...]:
    size = Size(5, 7)
    return (
        lines(
            "Step rate of each job",
            "Step rate as each job reports it. Find the moment at which it drops, and see which color above changes "
            "just before. A job at its usual pace is not slow, whatever else shows.",
            Query(host("instance_job_name:gpu_job_steps:rate5m"), host_legend("{{job_name}} ({{owner}})")),
            unit="ops",
            size=size,
        ),
        lines(
            "Busy share of each GPU",
            "Share of the last 5 minutes in which the GPU worked. Low while a job runs: it waits, see steps 4 and 5. "
            "A high value does not prove progress: a GPU spinning at a barrier is busy too. Compare it with its power.",
            worst(gpu("instance_gpu:gpu_busy:ratio5m")),
            unit="percentunit",
            size=size,
            top=1,
            line_at=(0.8, GOOD),
        ),
        lines(
            "GPU power relative to limit",
            "Power tells real work from busy waiting. Busy but low power: ranks wait for each other. One GPU below its "
            "peers at the same load: look for throttling.",
            worst(power_of_limit()),
            unit="percentunit",
            size=size,
        ),
    )


def _watched() -> Row:
    published = host("gpu_exporter_last_publication_timestamp_seconds")
    return Row(
        SEEN.row,
        timeline(
            SEEN.key_panel,
            "Whether Prometheus could scrape each host. If all other panels have a gap at the same time, "
            "monitoring failed, not necessarily the work: see whether the host is up.",
            Query(host("up") + f"\nand on ({TARGET})\n" + known(), OF_HOST),
            texts=UP,
            size=Size(12, 7),
        ),
        lines(
            "Age of overdue values",
            "How long ago the worst overdue collector of each host succeeded: its values are withdrawn and "
            "panels go empty, the driver may be hanging. Else the age of the page, a second or so.",
            Query(
                f"max by ({TARGET}) ({host('gpu_exporter_collector_stale_seconds')})\nor {age(by_host(published))}",
                OF_HOST,
            ),
            unit="s",
            size=Size(12, 7),
            line_at=(45, WATCH),
        ),
        folded=True,
    )
