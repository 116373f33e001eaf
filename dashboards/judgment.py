"""Panels with the judge's results: findings with their alerts, and the time lost to each bottleneck class."""

from typing import Final

from dashboards.job_measures import LOST_GPUS, MEMBER, OF_JOB, SCRAPED, WAITED_FOR
from dashboards.measured import MEASURED, MEASURED_BY, measured
from dashboards.panels import PanelBuilder, Query, Size, lines
from dashboards.selectors import (
    LOST,
    MOST_ROWS,
    RULES_ANSWER,
    TARGET,
    cluster,
    gpu,
    host,
    lost_seconds,
    numbered,
    only,
    rate,
    when,
)
from dashboards.steps import RUNBOOKS_URL
from dashboards.tables import GPU, GPU_OR_HOST, HOST, NO_LABEL, Column, ago, table_of
from dashboards.value_mappings import ALERT_FIRES, CLASS, FINDING, FIRES, SEVERITY
from gpu_triage.read.exporter.judgment import (
    GPU_BOTTLENECK_SECONDS_TOTAL,
    GPU_FINDING,
    GPU_FINDING_SINCE_TIMESTAMP_SECONDS,
    GPU_HOST_FINDING,
    GPU_HOST_FINDING_SINCE_TIMESTAMP_SECONDS,
)


def findings(size: Size) -> PanelBuilder:
    """Present findings on the selected GPUs and their hosts, and firing alerts; a finding and its alert are one row."""
    found = f"group by ({_OF_FINDING}, severity) ({present()})"
    ranked = _ranked(f"{_coded(_unfound(), 'severity')}\nor\n{found}")
    most_severe = f"bottomk({MOST_FINDINGS}, {_ranked(found, _OF_FINDING)})"
    shown = f"bottomk({MOST_ROWS}, {ranked}\nor\n4 * {_coded(RULES_ANSWER)})"

    began = f"min by ({_BY}) ({_coded(_of_all_kinds(numbered(host(_BEGAN)), _BEGAN))})"
    since = only(when(f"min by ({_OF_FINDING}) ({present()})"), _OF_FINDING, most_severe)
    since = f"{since}\nor\n1000 * {began}"
    return table_of(
        "Findings and alerts",
        "What the exporters find wrong now and which alerts fire, the most severe and then the oldest first. Rows "
        "without a GPU are about the host, or a job. What began first is often the cause of the rest. A finding is "
        "pending until it has lasted for its wait; while it is confirmed, its alert fires, unless that is turned off "
        "or the rules do not run. Lost: how many GPUs' work the job loses, or jobs that wait for the GPU or host. "
        "Click a name for what it means and what to do. The watchdog always fires. No data: no "
        "finding, and the rules do not run. Step 0 tells whether the exporter responds.",
        Column("Severity", expr=shown, texts=SEVERITY, width=94),
        Column("Finding", label="code", link=("What it means", f"{RUNBOOKS_URL}/${{__value.raw}}"), width=280),
        HOST,
        GPU_OR_HOST,
        Column("Measured", label=MEASURED, width=104),
        Column("Value", expr=only(measured(), MEASURED_BY, most_severe), hidden=True),
        ago("Since", expr=since, absent=NO_LABEL, width=116),
        Column("State", expr=_states(most_severe), texts=FINDING, absent=FIRES, width=100),
        Column("Action", label="action", width=144),
        Column("Lost", expr=_lost(shown), decimals=1, absent=NO_LABEL, width=68),
        Column("Job", label="owner", min_width=120),
        sort=("Severity", "Since"),
        size=size,
        rows_of="Severity",
    )


MOST_FINDINGS: Final = 300
"""How many have their details queried: more than there are rows, so that a short query can choose them."""
_OF_FINDING: Final = f"{TARGET}, gpu, code, action"
_BY: Final = f"{_OF_FINDING}, owner"
_FIRING: Final = 'alertstate="firing"'
_BEGAN: Final = "ALERTS_FOR_STATE"
_OF_SEVERAL: Final = 'alertname=~"GpuXid(Critical|Contained|Application)|GpuBaselineDrift"'
"""Alerts about all findings of one kind and severity on a GPU, without the code of one."""
_THEIRS: Final = 'code=~"xid[.].+|baseline[.]drift"'


_SINCE: Final = GPU_FINDING_SINCE_TIMESTAMP_SECONDS.name
_HOST_SINCE: Final = GPU_HOST_FINDING_SINCE_TIMESTAMP_SECONDS.name


def present(matchers: str = "") -> str:
    """Since when each finding is present, in Unix time."""
    return f"{gpu(_SINCE, matchers)} or {host(_HOST_SINCE, matchers)}"


def _ranked(rows: str, by: str = "") -> str:
    """The rank of each row's severity; rows of none are left out."""
    ranked = (f'label_replace(vector({rank}), "severity", "{name}", "", "")' for rank, name, _ in SEVERITY[:3])
    return f"min by ({by or _BY}) (({rows})\n* on (severity) group_left () ({' or '.join(ranked)}))"


def _unfound() -> str:
    """Alerts that fire without a present finding that they relay, and those about jobs or several hosts."""
    of_one, of_several = (
        host("ALERTS", f"{_FIRING}, {each}") for each in (_OF_SEVERAL.replace("=~", "!~"), _OF_SEVERAL)
    )
    unfound = (
        f"{of_one} unless on ({TARGET}, uuid, code) ({present()})\n"
        f"or {of_several} unless on ({TARGET}, uuid, severity) ({present(_THEIRS)})"
    )
    return _of_all_kinds(numbered(unfound), "ALERTS", _FIRING)


def _of_all_kinds(of_hosts: str, series: str, matchers: str = "") -> str:
    """Alerts about GPUs and hosts, and those about jobs or several hosts."""
    of_jobs, of_fleet = (
        cluster(series, ", ".join(filter(None, (SCRAPED, 'instance=""', whose, matchers))))
        for whose in ('owner!=""', 'owner=""')
    )
    of_jobs += f" and on ({OF_JOB}) {gpu(MEMBER)}"
    of_fleet = f'label_replace({of_fleet}, "code", "", "", "")'  # of what each host has as well
    return f"{of_hosts}\nor\n{of_jobs}\nor\n{of_fleet}"


def _coded(alerts: str, *more: str) -> str:
    """Alerts by the labels of a row, with their name instead of a code that they lack."""
    named = f'label_join({alerts}, "named", "|", "code", "alertname")'
    named = f'label_replace({named}, "code", "$1", "named", "[|](.+)")'
    return f"max by ({', '.join((_BY, *more))}) ({named})"


def _states(most_severe: str) -> str:
    """States of these findings: ALERT_FIRES while their alert does, as it does in all rows of alerts alone."""
    of_one, of_several = (host("ALERTS", f"{_FIRING}, {which}") for which in ('code!=""', _OF_SEVERAL))
    relayed = (
        f"({present()}) and on ({TARGET}, uuid, code) {of_one}\n"
        f"or ({present(_THEIRS)}) and on ({TARGET}, uuid, severity) {of_several}"
    )
    found = f"{gpu(GPU_FINDING.name)} > 0 or {host(GPU_HOST_FINDING.name)} > 0"
    relayed = f"group by ({_OF_FINDING}) ({relayed})"
    found = only(f"max by ({_OF_FINDING}) ({found} or {ALERT_FIRES} * {relayed})", _OF_FINDING, most_severe)
    return f"{found}\nor\n{ALERT_FIRES} * {_coded(RULES_ANSWER)}"  # else there is no column while there is no finding


def _lost(rows: str) -> str:
    """How many GPUs the job of a row loses, or jobs that wait for the GPU or host that it is about."""
    lost = f"max by ({OF_JOB}) ({cluster(LOST_GPUS, SCRAPED)})"
    waiting = f"sum by ({TARGET}, gpu) (0 * {host(WAITED_FOR)} + on ({OF_JOB}) group_left () {lost})"
    return f"group by ({_BY}) ({rows})\n* on ({TARGET}, gpu, owner) group_left ()\n({lost} or {waiting})"


def time_lost(size: Size) -> PanelBuilder:
    return table_of(
        "Time lost, by GPU and class",
        "How long each GPU was limited by something other than its own work in the time shown. The sum is what the "
        "incident has cost so far. No data: no time lost. Step 0 tells whether the exporter responds.",
        HOST,
        GPU,
        Column("Lost to", label="class", texts=CLASS, width=130),
        Column(
            "Time",
            expr=f"topk({MOST_ROWS}, sum by ({TARGET}, gpu, class) ({lost_seconds()}) > 0)",
            unit="s",
            decimals=0,
        ),
        sort="-Time",
        size=size,
    )


def gpus_lost(size: Size) -> PanelBuilder:
    return lines(
        "GPUs lost, by bottleneck",
        "How many GPUs' worth of time each class takes at each moment, from the seconds counter, so that a gap between "
        "scrapes hides nothing. Many GPUs changing at once point at something they share. No data: no time lost, "
        "or no exporter answers.",
        Query(f"sum by (class) ({rate(gpu(GPU_BOTTLENECK_SECONDS_TOTAL.name, LOST))})", "{{class}}"),
        unit="none",
        size=size,
        stacked=True,
        names={str(name): (text, color) for name, text, color in CLASS},
    )
