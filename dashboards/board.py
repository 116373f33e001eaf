"""Parts shared by all dashboards: variables, links, annotations, and the layout of rows on the grid."""

from dataclasses import dataclass
from typing import Any

from grafana_foundation_sdk.builders import dashboard as sdk
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models import dashboard as model

from dashboards import not_shown
from dashboards.annotations import ANNOTATIONS
from dashboards.owners import (
    EVERY_OWNER,
    OWNER_LABELS,
    all_of,
    choices_of_owners,
    hidden_variable,
    narrowed,
    owned_indices,
    owned_instances,
    owned_variables,
)
from dashboards.panels import PanelBuilder, datasource, panel_id
from dashboards.selectors import CLUSTER, GPU, HOST, LEGEND, MOST_ROWS, OF_HOST, TARGET, chosen_from, derived, short

TAG = "gpu-triage"
SCHEMA_VERSION = 39
"""Schema of Grafana 10.4: later versions migrate it automatically, earlier ones support nothing newer."""


class Row:
    """A row and its panels, laid out from left to right.

    Args:
        title: of the row; "" for panels above all rows.
        panels: in order.
        folded: whether the row is initially collapsed; its panels run no queries until it is expanded.
    """

    def __init__(self, title: str, *panels: PanelBuilder, folded: bool = False) -> None:
        self.title, self.panels, self.folded = title, panels, folded


@dataclass(frozen=True, slots=True)
class Board:
    """A dashboard; `since` is its time range and `refresh` its interval, "" for none.

    The switches: a single GPU or host instead of all selected ones, variables for GPUs and for their owners, an owner
    that must be chosen, a variable for the label of pods, annotations, and links to runbooks, which an exporter serves.
    """

    uid: str
    title: str
    description: str
    rows: tuple[Row, ...]
    since: str
    refresh: str = "30s"
    one_gpu: bool = False
    one_host: bool = False
    per_gpu: bool = True
    owners: bool = False
    needs_owner: bool = False
    pod_label: bool = False
    marks: bool = True
    runbooks: bool = False
    variables: tuple[Builder[model.VariableModel], ...] = ()
    """Of this dashboard alone, the last ones."""


def build(board: Board) -> model.Dashboard:
    builder = sdk.Dashboard(board.title).uid(board.uid).description(board.description).tags([TAG])
    builder = builder.editable().tooltip(model.DashboardCursorSync.CROSSHAIR).timezone("browser")
    builder = builder.time(f"now-{board.since}", "now").refresh(board.refresh)
    builder = builder.links([_other_dashboards()]).variables(_variables(board))
    if board.marks:
        builder = builder.annotations(list(ANNOTATIONS))
    for row in _rows(board):
        head = sdk.Row(row.title).id(panel_id(f"row {row.title}"))
        if row.folded:
            for panel in row.panels:
                head = head.with_panel(panel)
            builder = builder.with_row(head)
            continue
        builder = builder.with_row(head) if row.title else builder
        for panel in row.panels:
            builder = builder.with_panel(panel)
    found = builder.build()
    found.schema_version = SCHEMA_VERSION
    _shorten_legends(found, one_gpu=board.one_gpu)
    if board.owners:
        _narrow(found)
    _count_rows(found)
    _close_gaps(found)
    return found


def _rows(board: Board) -> tuple[Row, ...]:
    """The rows, after the one with what is not shown where raw series are."""
    what = Row(not_shown.TITLE, not_shown.panel(needs_owner=board.needs_owner), folded=True)
    return (what, *board.rows) if board.marks else board.rows


def _panels(found: model.Dashboard) -> list[Any]:
    inside = [panel for each in found.panels or () if isinstance(each, model.RowPanel) for panel in each.panels]
    return [*(each for each in found.panels or () if isinstance(each, model.Panel)), *inside]


def _queries(found: model.Dashboard) -> list[Any]:
    return [target for panel in _panels(found) for target in panel.targets or ()]


def _shorten_legends(found: model.Dashboard, *, one_gpu: bool) -> None:
    """Leave out of legends what all lines have in common: the host or the GPU, if only one is selected.

    Legends without further words keep their last part. Hosts have their short names.
    """
    host, number = ("", "") if one_gpu else (f"${OF_HOST_VARIABLE} ", f"${OF_GPU_VARIABLE} ")
    for each in _queries(found):
        if OF_HOST in (each.legend_format or "") and not one_gpu:
            each.expr = short(each.expr)
        words = (each.legend_format or "").replace(f"{LEGEND} ", f"{host}{number}").replace(f"{OF_HOST} ", host)
        each.legend_format = words.strip()


def _narrow(found: model.Dashboard) -> None:
    """Make each query and mark read the hosts and GPUs of the chosen owner only."""
    queries = _queries(found)
    marks = (found.annotations.list_val if found.annotations else None) or ()
    for each in (*queries, *marks):
        each.expr = narrowed(each.expr)


def _count_rows(found: model.Dashboard) -> None:
    """Let the title of each table end with of how many its rows are the worst, by a hidden variable; "" if of all."""
    names: dict[str, str] = {}
    for panel in (each for each in _panels(found) if each.type_val == "table" and each.title != not_shown.TABLE):
        every = next(filter(None, (chosen_from(target.expr, MOST_ROWS) for target in panel.targets or ())), "")
        if every:
            panel.title = f"{panel.title}${names.setdefault(every, f'of_{panel.id_val}')}"
    for every, name in names.items():
        number = f'count_values("count", count({every}) > {MOST_ROWS})'
        title = derived(number, "title", "count", "(.+)", f": {MOST_ROWS} of $1")
        found.templating.list_val = [*(found.templating.list_val or ()), hidden_variable(name, "title", title).build()]


def _close_gaps(found: model.Dashboard) -> None:
    """Move rows below a collapsed row up to it: its panels take no space while collapsed, and Grafana saves it so."""
    gap, below = 0, None
    for each in found.panels or ():
        if each.grid_pos is None:
            continue
        if below is not None:
            gap = each.grid_pos.y - below
        inside = each.panels if isinstance(each, model.RowPanel) else []
        for place in (each.grid_pos, *(panel.grid_pos for panel in inside if panel.grid_pos is not None)):
            place.y -= gap
        below = each.grid_pos.y + 1 if inside else None


def _other_dashboards() -> sdk.DashboardLink:
    return (
        sdk.DashboardLink("GPU dashboards")
        .type(model.DashboardLinkType.DASHBOARDS)
        .tags([TAG])
        .as_dropdown(as_dropdown=True)
        .include_vars(include_vars=True)
        .keep_time(keep_time=True)
    )


POD_LABEL = "pod_label"
"""Variable for the label of kube_pod_labels by which GPUs are counted."""


def _variables(board: Board) -> list[Builder[model.VariableModel]]:
    found: list[Builder[model.VariableModel]] = [
        sdk.DatasourceVariable("datasource").label("Data source").type("prometheus"),
        # Targets may lack the label: "all clusters" includes them.
        _labels("cluster", "Cluster", "label_values(gpu_exporter_build_info, cluster)", ".*"),
        # Nearly always a single one: the address can choose it, and links keep it.
        _labels("job", "Scrape job", f"label_values(gpu_exporter_build_info{{{CLUSTER}}}, job)", ".+").hide(
            model.VariableHide.HIDE_VARIABLE
        ),
    ]
    every_instance = f'label_values(gpu_exporter_build_info{{{CLUSTER}, job=~"$job"}}, instance)'
    instances, gpus = every_instance, f"label_values(gpu_up{{{HOST}}}, gpu)"
    if board.owners:
        instances, gpus = owned_instances(), owned_indices()
        found += [
            _labels(name, label, choices_of_owners(name), EVERY_OWNER) for name, (label, _) in OWNER_LABELS.items()
        ]
        found += owned_variables(required=board.needs_owner)
    if board.one_gpu:
        found += [_one_label("instance", "Host", instances), _one_label("gpu", "GPU", gpus)]
    else:
        one_host = _one_label("instance", "Host", instances)
        found.append(one_host if board.one_host else _labels("instance", "Host", instances, ".+"))
        # Host alerts have no GPU: "all GPUs" includes them.
        found += [_labels("gpu", "GPU", gpus, ".*")] if board.per_gpu else []
    if not board.one_gpu:
        found += _legend_variables(board)
    found.append(_domain())
    if board.marks:
        reasons = not_shown.reasons(needs_owner=board.needs_owner)
        found.append(not_shown.variable(narrowed(reasons) if board.owners else reasons))
    if board.pod_label:
        found.append(sdk.TextBoxVariable(POD_LABEL).label("Label of pods").default_value("label_team"))
    # Every exporter serves all runbooks: if this one is down, select another.
    runbooks = [_one_label("exporter", "Runbooks from", every_instance)] if board.runbooks else []
    return [*found, *runbooks, *board.variables]


OF_HOST_VARIABLE, OF_GPU_VARIABLE = "of_host", "of_gpu"
"""Hidden variables with the parts of legends that name host and GPU."""


def _legend_variables(board: Board) -> list[Builder[model.VariableModel]]:
    """Parts of legends: a blank while a single host, or a single GPU, is selected."""
    counted = {
        OF_HOST_VARIABLE: (OF_HOST, f"group by ({TARGET}) (gpu_exporter_build_info{{{HOST}}})"),
        OF_GPU_VARIABLE: ("GPU {{gpu}}", f"group by ({TARGET}, gpu) (gpu_up{{{GPU if board.per_gpu else HOST}}})"),
    }
    return [
        hidden_variable(
            name,
            "legend",
            f'label_replace(count({narrowed(each) if board.owners else each}) > 1, "legend", "{words}", "", "") '
            'or on () label_replace(vector(1), "legend", " ", "", "")',
        )
        for name, (words, each) in counted.items()
    ]


def _domain() -> sdk.QueryVariable:
    """The domain that all selected hosts share: no value if they have several, or if one has none."""
    of_each = derived(f"gpu_exporter_build_info{{{HOST}}}", "domain", "instance", _DOMAIN)
    all_of_them = f"group by (domain) ({of_each})"
    return hidden_variable("domain", "domain", f"{all_of_them} and on () (count({all_of_them}) == 1)")


_DOMAIN = "[^.:]*[a-zA-Z][^.:]*([.][^:]+)(?::[0-9]+)?|.*"
"""An IPv4 address has none."""


def _labels(name: str, label: str, query: str, everything: str) -> sdk.QueryVariable:
    """A multi-value variable; "all" is a single pattern, regardless of the number of values."""
    return all_of(_one_label(name, label, query)).all_value(everything)


def _one_label(name: str, label: str, query: str) -> sdk.QueryVariable:
    return (
        sdk.QueryVariable(name)
        .label(label)
        .datasource(datasource())
        .query({"qryType": 1, "query": query, "refId": f"variable-{name}"})
        .refresh(model.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(model.VariableSort.NATURAL_ASC)
    )
