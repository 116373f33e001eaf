"""What a dashboard cannot show, and why: hosts that are down, GPUs that are not read, collectors that fail.

A folded row at the top of each dashboard names them in its title; unfolded, its table has the reasons and times.
"""

from typing import Final

from grafana_foundation_sdk.builders.dashboard import QueryVariable

from dashboards.owners import EVERY_OWNER, OWNER_LABELS, all_of, hidden_variable
from dashboards.panels import PanelBuilder, Size
from dashboards.selectors import MOST_ROWS, TARGET, by_host, derived, gpu, host, risen, short, silent
from dashboards.tables import GPU_OR_HOST, HOST, Column, ago, table_of

VARIABLE: Final = "not_shown"
TITLE: Final = f"Not shown:${{{VARIABLE}:csv}}"
TABLE: Final = "What is not shown, and why"
WHY: Final = "why"
_OF_HOST: Final = f"{TARGET}, {WHY}"
_OF_GPU: Final = f"{TARGET}, gpu, {WHY}"
MOST_NAMED: Final = 5
"""The most hosts and GPUs that the title names; it counts the others."""


def reasons(*, needs_owner: bool) -> str:
    """A series for each host or GPU of which something is not shown, with the reason as a label, the highest first."""
    failing = host("gpu_exporter_collector_stale_seconds")
    errors = f"{risen(host('gpu_exporter_errors_total'))} > 0 and on ({TARGET}, collector) {failing}"
    errors = f'label_join({errors} or on ({TARGET}, collector) {failing}, "failing", " ", "collector", "error")'
    found = [
        _silent(),
        _said("driver does not answer", f"{host('gpu_driver_up')} == 0"),
        _said("GPUs released by the exporter", f"{host('gpu_exporter_gpus_released')} == 1"),
        f"group by ({_OF_HOST}) ({derived(errors, WHY, 'failing', '(.+?) ?', 'collector fails: $1')})",
        f"group by ({_OF_GPU}) ({derived(gpu('gpu_error_info'), WHY, 'error', '(.+)', 'not read: $1')})",
        _said("split by MIG: see its instances", f"{gpu('gpu_mig_mode')} == 1", _OF_GPU),
    ]
    found = [_unless_chosen(), *found] if needs_owner else found
    return "\nor\n".join(f"{len(found) - place} * {each}" for place, each in enumerate(found))


def _said(reason: str, expr: str, by: str = _OF_HOST) -> str:
    return f'group by ({by}) (label_replace({expr}, "{WHY}", "{reason}", "", ""))'


def _silent() -> str:
    silent_hosts = f'count_values by ({TARGET}) ("{WHY}", {silent()} > 0)'
    gone = derived(silent_hosts, WHY, WHY, "1", "no longer scraped")
    return f"group by ({_OF_HOST}) ({derived(gone, WHY, WHY, '2', 'exporter down')})"


def _unless_chosen() -> str:
    chosen, every = "".join(f"${name}" for name in OWNER_LABELS), EVERY_OWNER * len(OWNER_LABELS)
    owners, all_of_them = (f'label_replace(vector(1), "owners", "{each}", "", "")' for each in (chosen, every))
    return _said("no owner is chosen", f"{owners} and on (owners) {all_of_them}", WHY)


def panel(*, needs_owner: bool) -> PanelBuilder:
    chosen = f"topk({MOST_ROWS}, {reasons(needs_owner=needs_owner)})"
    up = f"{host('up')} == 1"
    since = f"{by_host(f'max_over_time(timestamp({up})[$__range:1m])')} unless on ({TARGET}) {up}"
    return table_of(
        TABLE,
        "Hosts and GPUs without some or all of their values. Empty panels about them are no sign of health. Last seen: "
        "when an exporter that is silent was last scraped, if that was in the time range. No data: nothing is missing.",
        HOST,
        GPU_OR_HOST,
        Column("Why", label=WHY, min_width=300),
        Column("Missing", expr=chosen, hidden=True),
        ago("Last seen", expr=f"1000 * topk({MOST_ROWS}, {since})", width=160),
        sort=("Last seen", "Why"),
        size=Size(24, 7),
        rows_of="Missing",
    )


def variable(all_of_them: str) -> QueryVariable:
    """What the title names: the first hosts and GPUs with their `reasons`, and how many there are beyond."""
    named = derived(short(f"topk({MOST_NAMED}, {all_of_them})"), "of", "host", "(.*)")
    named = derived(f'label_join({named}, "of_gpu", " GPU ", "host", "gpu")', "of", "of_gpu", "(.* GPU .+)")
    named = f'label_join({named}, "text", " ", "of", "{WHY}")'
    others = f'count_values("number", count({all_of_them}) - {MOST_NAMED} > 0)'
    others = derived(others, "text", "number", "(.+)", "and $1 more")
    nothing = 'label_replace(vector(1), "text", "nothing", "", "")'
    # Grafana puts no blank after its commas.
    entries = derived(f"{named} or {others} or on () {nothing}", "entry", "text", "(.+)", " $1")
    return all_of(hidden_variable(VARIABLE, "entry", entries))
