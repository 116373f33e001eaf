"""GPU fast diagnosis, for incidents: a verdict per step, bottleneck and findings per GPU, a collapsed row per step."""

from types import MappingProxyType
from typing import Final

from grafana_foundation_sdk.models.common import VisibilityMode

from dashboards.board import Board, Row
from dashboards.diagnosis_host import software, starved, tune
from dashboards.diagnosis_machine import held_back, path, sick
from dashboards.job_measures import LOST_GPUS, MEMBER, OF_JOB, SCRAPED, alerts_of_jobs
from dashboards.judgment import findings, gpus_lost, time_lost
from dashboards.palette import GOOD, GRAY
from dashboards.panels import Cell, PanelBuilder, Query, Size, limits, lines, panel_id, shares, timeline, worded_strip
from dashboards.selectors import (
    MOST_SERIES,
    OF_HOST,
    RULES_ANSWER,
    TARGET,
    age,
    alerts,
    bottleneck,
    bottleneck_in,
    by_host,
    cluster,
    gpu,
    host,
    host_legend,
    known,
    lowest_first,
    most,
    power_of_limit,
    short,
    silent,
    unread_gpus,
    worst,
    worst_first,
)
from dashboards.steps import COUNTED, SEEN, SICK, SOFTWARE, STEPS, TUNE, Step, alerts_of
from dashboards.value_mappings import BOTTLENECK, STEP, UP
from gpu_triage.judge.evidence.thresholds import WAITING_BELOW_SHARE

UID = "gpu-triage-diagnosis"
VERDICTS: Final = MappingProxyType(
    {
        "Verdicts: can it be seen, is it sick?": "Which GPUs are suspect at each step of the playbook now, else hosts: "
        "one by name, several by number. Red: at least one critical; amber: warnings. OK: judged, none. Gray: GPUs "
        "that are not read, so that nothing is known of them: the first row says why. N/A: cannot be judged here. Read "
        "from left to right, and click a step for what to look at, and for the playbook.",
        "Is it held back?": "By heat, power or clocks; by its link, NVLink, the fabric or the network.",
        "Is it waiting?": "For its host's storage, CPUs, memory or network; or for other ranks and its own software.",
        "If not: the job": "GPU-bound work is no fault. If the jobs' steps, as they count them, have not slowed down, "
        "nothing is slow. GPUs lost: as many GPUs' work as the jobs lose now, which is what it costs.",
    }
)
"""Panels with so few tiles each that they fit on a phone: titles and descriptions."""
WHO: Final = "who"
"""Label with the words of a verdict."""


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
    return (*_verdicts(), findings(Size(24, 7)), _bottleneck(), *_work())


def _verdicts() -> tuple[PanelBuilder, ...]:
    # All ranks of a job make the same steps.
    steps = f"max by (cluster, owner, job_name) ({host('instance_job_name:gpu_job_steps:rate5m')})"
    pace = Cell("Job steps, 5 min", f"sum({steps})", unit="ops", steps=limits(base=GRAY), decimals=2)
    lost = f"sum(max by ({OF_JOB}) ({cluster(LOST_GPUS, SCRAPED)} and on ({OF_JOB}) {gpu(MEMBER)}))"
    cost = Cell("GPUs lost", lost, unit="short", steps=limits(base=GRAY), decimals=1)
    cells = [*(Cell(step.title, verdict_query(step), links=_links(step)) for step in STEPS), pace, cost]
    return tuple(
        worded_strip(
            title,
            f"{said} No data: the rules do not run, or there is no exporter.",
            *cells[2 * number : 2 * number + 2 + (number == len(VERDICTS) - 1)],
            label=WHO,
            texts=STEP,
            size=Size(6, 4),
        )
        for number, (title, said) in enumerate(VERDICTS.items())
    )


def _links(step: Step) -> tuple[tuple[str, str], ...]:
    look = f"/d/{UID}?viewPanel={panel_id(step.key_panel)}&${{__url_time_range}}&${{__all_variables}}"
    return (("Look at it", look), (step.decide, step.url))


def verdict_query(step: Step) -> str:
    """A series with the step's suspects in the label `who`; OK for none, N/A if it can't be judged.

    One series for GPUs and one for hosts that are suspect as a whole; none without rules or exporter. What is before
    the bar is how bad the worst of them is. Nothing is OK while GPUs are not read.
    """
    suspects = _named(_suspects(step), of_gpus=bool(step.classes))
    if step.classes:
        number = f'count_values("number", count({unread_gpus()}))'
        suspects += f'\nor on ()\nlabel_replace({number}, "{WHO}", "-|$1 not read", "number", "(.*)")'
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
        return f"max by ({TARGET}) ({_how_bad(host('ALERTS', firing))} or {silent()} > 0)"
    waiting = f"group by ({TARGET}, gpu) {bottleneck_in(step.classes)}"
    if step is TUNE:
        return f"3 * {waiting}"
    held = f"2 * {waiting}" if step is SICK else waiting
    whole_host = f'label_replace(group by ({TARGET}) ({waiting}), "gpu", "", "", "")'
    of_jobs = _of_hosts_jobs(firing) if step is SOFTWARE else ""
    alerted = f"{_how_bad(f'({alerts(firing)}{of_jobs})')}\n  unless on ({TARGET}, gpu) {whole_host}"
    return f"max by ({TARGET}, gpu) (\n  {held}\n  or\n  ({alerted})\n)"


def _of_hosts_jobs(firing: str) -> str:
    """Alerts about jobs, which have no host, at each of the selected hosts with GPUs of the job."""
    told = f"max by ({OF_JOB}, severity) ({alerts_of_jobs(firing)})"
    return f"\nor\ngroup by ({TARGET}, owner) ({host(MEMBER)}) * on ({OF_JOB}) group_left (severity) {told}"


def _how_bad(alerts_firing: str) -> str:
    """Alerts with the value 2 if they are critical, 1 if they are warnings."""
    ranks = (_ranked("critical", 1), _ranked("warning", 0))
    return f"{alerts_firing}\n  + on (severity) group_left () ({' or '.join(ranks)})"


def _ranked(severity: str, more: int) -> str:
    return f'label_replace(vector({more}), "severity", "{severity}", "", "")'


def _named(suspects: str, *, of_gpus: bool) -> str:
    """The suspects as words, after the worst one's rank: ``2|node-7 GPU 5`` for one, ``1|6 GPUs`` for several.

    One with a long name is counted, too.
    """
    kinds = f'label_replace(\n{short(suspects)},\n"kind", "hosts", "", "")'
    kinds = f'label_replace({kinds}, "kind", "GPUs", "gpu", ".+")' if of_gpus else kinds
    # VictoriaMetrics garbles a label that is joined from itself: each step has a label of its own.
    worst_one = f'label_replace(topk by (kind) (1, {kinds}), "named", "$1", "host", "(.*)")'
    if of_gpus:
        worst_one = f'label_join({worst_one}, "of_gpu", " GPU ", "host", "gpu")'
        worst_one = f'label_replace({worst_one}, "named", "$1", "of_gpu", "(.* GPU .+)")'
    number = f'count_values by (kind) ("number", count by (kind) ({kinds}))'
    several = f'label_join({worst_one}\n* on (kind) group_left (number) {number}, "several", " ", "number", "kind")'
    said = f'label_replace({several}, "named", "$1", "several", "((?:[2-9]|[0-9]{{2,}}) .+)")'
    for kind, name in (("host", ""), ("GPU", " GPU .+")):
        said = f'label_replace({said}, "named", "1 {kind}", "named", "[^ ]{{{MOST_LETTERS + 1},}}{name}")'
    return f'label_join(count_values by (named) ("rank", {said}), "{WHO}", "|", "rank", "named")'


MOST_LETTERS: Final = 18
"""Of the name of a host that has room on its tile."""


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
        f"that time. The worst come first; of more than {MOST_SERIES} GPUs, they alone. No data: no exporter "
        "answers, or it has judged no GPU yet.",
        worst_first(bottleneck()),
        texts=BOTTLENECK,
        size=Size(7, 9),
        show_value=VisibilityMode.AUTO,
    )


def _work() -> tuple[PanelBuilder, ...]:
    size = Size(6, 9)
    return (
        lines(
            "Steps of jobs, 5 min",
            "As each job reports it, on each host. Find the moment at which it drops, and see which color above "
            "changes just before. A job at its usual pace is not slow, whatever else shows. No data: no job counts its "
            "steps (gpu_job_steps_total).",
            Query(most(host("instance_job_name:gpu_job_steps:rate5m")), host_legend("{{job_name}}")),
            unit="ops",
            size=Size(5, 9),
            crowded=True,
        ),
        shares(
            "Busy share, 5 min",
            "Share of the time in which the GPU worked. Low while a job runs: it waits, see steps 4 and 5. "
            "A high value does not prove progress: a GPU spinning at a barrier is busy too. Compare it with its power. "
            "No data: the rules do not run, or the GPUs do not report it.",
            worst(gpu("instance_gpu:gpu_busy:ratio5m")),
            size=size,
            crowded=True,
            line_at=(WAITING_BELOW_SHARE, GOOD),
            low_is_worse=True,
        ),
        lines(
            "Power of limit",
            "Power tells real work from busy waiting. Busy but low power: ranks wait for each other. One GPU below its "
            "peers at the same load: look for throttling. No data: the GPUs do not report power and its limit.",
            worst(power_of_limit()),
            unit="percentunit",
            size=size,
            crowded=True,
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
            Query(lowest_first(f"{host('up')}\nand on ({TARGET})\n{known()}"), OF_HOST),
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
        ),
        folded=True,
    )
