"""GPU fast diagnosis: the dashboard of an incident. Verdict per step, bottleneck per GPU, then a row per step."""

from __future__ import annotations

from grafana_foundation_sdk.models.common import VisibilityMode

from dashboards.board import Board, Row
from dashboards.diagnosis_host import software, starved, tune
from dashboards.diagnosis_machine import held_back, path, sick
from dashboards.panels import PanelBuilder, Query, Size, limits, lines, panel_id, tile, timeline
from dashboards.selectors import gpu, gpu_or_host, host, worst
from dashboards.steps import COUNTED, RUNBOOKS_URL, SEEN, STEPS, TUNE, Step, alerts_of
from dashboards.tables import HOST, Column, detail_link, table_of
from dashboards.words import BOTTLENECK, SEVERITY, VERDICT

UID = "gpu-triage-diagnosis"
RULES_ANSWER = 'ALERTS{alertname="GpuTriageWatchdog", alertstate="firing"}'
"""The one alert that always fires: without it the rules do not run, and no verdict may be given."""


def board() -> Board:
    """The dashboard; its first rows of panels fill a screen of 1080 lines."""
    return Board(
        uid=UID,
        title="GPU fast diagnosis",
        description="Why is this GPU job slow or sick? Read the verdicts from left to right; the first that is not OK "
        "is where to look. Rows below follow the playbook's order.",
        since="3h",
        rows=(
            Row("", (*(_verdict(step) for step in STEPS), _pace(), _bottleneck(), _alerts(), *_work())),
            sick(),
            held_back(),
            path(),
            starved(),
            software(),
            tune(),
            _watched(),
        ),
    )


def verdict_query(step: Step) -> str:
    """How many GPUs are suspect, 0 for none, -1 where it cannot be judged; nothing without rules or exporter.

    GPUs are those whose rung of the bottleneck ladder matches. Where there is none on a host, its alerts count.
    """
    firing = ", ".join(
        (
            'alertstate="firing"',
            f'severity=~"{"|".join(sorted(COUNTED))}"',
            f'alertname=~"{"|".join(alerts_of(step))}"',
        )
    )
    rung = gpu("instance_gpu_class:gpu_bottleneck:candidate", f'class=~"{"|".join(step.classes)}"')
    if step is TUNE:
        suspects = f"group by (job, instance, gpu) ({gpu('instance_gpu:gpu_bottleneck:active', _bound())} == 1)"
    elif step.classes:
        suspects = (
            f"group by (job, instance, gpu) ({rung})\n"
            f"  or\n  (\n    group by (job, instance, gpu) ({gpu_or_host('ALERTS', firing)})\n"
            f"    unless on (job, instance)\n    {rung}\n  )"
        )
    else:
        suspects = (
            f"group by (job, instance) ({host('ALERTS', firing)})\n  or\n  group by (job, instance) ({_silent()})"
        )
    judged = gpu(step.judged_by) if step.per_gpu else host(step.judged_by)
    return (
        f"(\n  count(\n  {suspects}\n  )\n"
        f"  or\n  0 * count({judged})\n"
        f"  or\n  0 * count({host('gpu_exporter_build_info')} or {host('up')}) - 1\n)\n"
        f"and on ()\n{RULES_ANSWER}"
    )


def _bound() -> str:
    return f'class="{TUNE.classes[0]}"'


def _silent() -> str:
    return f"{host('up')} == 0"


def _verdict(step: Step) -> PanelBuilder:
    return tile(
        step.title,
        f"How many GPUs (hosts, where an alert concerns a whole one) this step of the playbook finds suspect now. OK: "
        f"judged, none. N/A: not reported here. No data: no rules or no exporter answers. {step.decide}",
        verdict_query(step),
        unit="none" if step is TUNE else "suffix: suspect",
        size=Size(3, 4),
        words=((-1, "N/A", "#808080"), (0, "none", "#808080")) if step is TUNE else VERDICT,
        steps=limits((1, "blue")) if step is TUNE else limits((1, "orange" if step is SEEN else "dark-red")),
        links=(
            ("Look at it", f"/d/{UID}?viewPanel={panel_id(step.key_panel)}&${{__url_time_range}}&${{__all_variables}}"),
            ("What the playbook says", step.url),
        ),
    )


def _pace() -> PanelBuilder:
    return tile(
        "Job steps a second",
        "The jobs' own clock, all chosen hosts together, from the files that jobs write. Wall-clock is the first "
        "question: if this has not fallen, the job is not slow. No data: no job writes gpu_job_steps_total.",
        f"sum({host('instance_job_name:gpu_job_steps:rate5m')})",
        unit="ops",
        size=Size(3, 4),
        graph=True,
    )


def _bottleneck() -> PanelBuilder:
    return timeline(
        "Bottleneck of each GPU",
        "What is scarce first on each GPU, one class at any moment. Green: the GPU itself is the limit, which is good. "
        "Look at who changes colour first and what marks stand there. With more than 40 GPUs: the worst.",
        worst(gpu("instance_gpu:gpu_bottleneck:rank")),
        BOTTLENECK,
        size=Size(15, 10),
        show_value=VisibilityMode.AUTO,
    )


def _alerts() -> PanelBuilder:
    severity = "\nor\n".join(
        f"{rank} * max by (job, instance, gpu, alertname, action) ({gpu_or_host('ALERTS', _of_severity(name))})"
        for rank, name, _ in SEVERITY[:3]
    )
    watchdog = f"4 * max by (alertname, action) ({RULES_ANSWER})"
    return table_of(
        "Firing alerts",
        "What fires now, most severe first; a click on the name opens its runbook. The watchdog always fires: an empty "
        "table means that the rules do not run.",
        (
            Column("Severity", expr=f"{severity}\nor\n{watchdog}", words=SEVERITY, width=80),
            Column("Alert", label="alertname", link=("Runbook", f"{RUNBOOKS_URL}/${{__value.raw}}.md"), width=230),
            HOST,
            Column("GPU", label="gpu", link=detail_link(), width=50),
            Column("Action", label="action", width=120),
        ),
        sort="Severity",
        size=Size(9, 10),
        empty="The rules do not run",
    )


def _of_severity(name: str) -> str:
    return f'alertstate="firing", severity="{name}"'


def _work() -> tuple[PanelBuilder, ...]:
    size = Size(8, 6)
    return (
        lines(
            "Steps of each job",
            "Step rate as each job writes it. Compare the moment it falls with the colours above: what changed first "
            "is the cause. A job at its old pace is not slow, whatever else shows.",
            [Query(host("instance_job_name:gpu_job_steps:rate5m"), "{{instance}} {{job_name}}")],
            unit="ops",
            size=size,
        ),
        lines(
            "Busy share of each GPU",
            "Share of the last 5 minutes in which kernels ran. Low while a job runs: it waits, see steps 4 and 5. High "
            "proves little: spinning at a barrier is busy, so compare with the power beside it.",
            worst(gpu("instance_gpu:gpu_busy:ratio5m")),
            unit="percentunit",
            size=size,
            top=1,
            line_at=(0.8, "green"),
        ),
        lines(
            "Power of each GPU, as a share of its limit",
            "Power tells real work from waiting in kernels. Busy with little power: ranks wait for each other. One GPU "
            "below its peers at equal load: look for throttling.",
            worst(gpu("instance_gpu:gpu_power:ratio_to_limit")),
            unit="percentunit",
            size=size,
        ),
    )


def _watched() -> Row:
    last_success = host("gpu_exporter_collector_last_success_timestamp_seconds")
    return Row(
        f"{SEEN.title} The exporter itself",
        (
            timeline(
                "Exporters that answer",
                "Whether Prometheus could scrape each host. A gap in every other panel at the same time is a gap of "
                "sight, not of work: see whether the host is up.",
                [Query(host("up") + "\nand on (job, instance)\n" + _known(), "{{instance}}")],
                ((1, "answers", "green"), (0, "silent", "dark-red")),
                size=Size(12, 7),
            ),
            lines(
                "Age of the oldest values, in intervals of their collector",
                "How long ago the most delayed collector of each host last succeeded. Above 3 its values are withdrawn "
                "and panels go empty: the driver may hang.",
                [
                    Query(
                        "max by (job, instance) (\n"
                        f"  (timestamp({last_success}) - {last_success})\n"
                        f"  / {host('gpu_exporter_collector_interval_seconds')}\n)",
                        "{{instance}}",
                    )
                ],
                unit="short",
                size=Size(12, 7),
                line_at=(3, "orange"),
            ),
        ),
    )


def _known() -> str:
    """Targets that were exporters at any time shown: a target that is silent says nothing else of itself."""
    return f"last_over_time({host('gpu_exporter_build_info')}[$__range] @ end())"
