"""Table panels: one row per GPU, host, link or finding, one column per query or label."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from grafana_foundation_sdk.builders import common, table
from grafana_foundation_sdk.builders.dashboard import ThresholdsConfig
from grafana_foundation_sdk.models.dashboard import DataTransformerConfig, DynamicConfigValue

from dashboards.owners import OWNER_LABELS
from dashboards.palette import PLAIN
from dashboards.panels import FULL, PanelBuilder, Size, headed, instant_target, limits, refs, table_target
from dashboards.selectors import SHORT_NAME, derived, short
from dashboards.value_mappings import Texts, mapping, patterns

ABSENT = "N/A"
"""Cell text if the GPU doesn't report the value."""
NO_LABEL = "-"
"""Cell text if the series lacks the label, such as the GPU of a host finding."""

_MATRIX_CELL = 62
"""Width in pixels, so that the eight GPUs of a host fit side by side."""
_USUAL_WIDTH = 150
_USUAL_WIDTHS = {"name": 215, "uuid": 340, "mig_uuid": 350, "board_part_number": 170}
"""In pixels, by label, of texts that are longer than most."""
_BACKGROUND = {"type": "color-background", "mode": "basic"}
_HIDDEN = DynamicConfigValue("custom.hidden", value=True)


@dataclass(frozen=True, slots=True)
class Column:
    """A table column.

    Attributes:
        title: column heading.
        label: the label to show; "" to show a query's value.
        expr: the query; labels that other columns' queries lack become columns of their own if listed.
        unit: in Grafana's notation.
        texts: texts and colors by value, or by label value.
        absent: cell text if there is no value.
        no_label: cell text if the series lacks the label.
        steps: thresholds that color the cell.
        link: title and URL opened by a click, beside those that all columns of the label have.
        width: in pixels, at least that of the title; None for an equal share of the remaining width.
        min_width: in pixels, for a column without a width, at least that of the title; None for the usual one.
        decimals: None for automatic.
        hidden: whether the value isn't shown: the query only provides rows, and labels for other columns.
        number: whether the label, which no row lacks, is a number and sorted as one.
    """

    title: str
    label: str = ""
    expr: str = ""
    unit: str = "none"
    texts: Texts = ()
    absent: str = ABSENT
    no_label: str = NO_LABEL
    steps: ThresholdsConfig | None = None
    link: tuple[str, str] | None = None
    width: int | None = None
    min_width: int | None = None
    decimals: int | None = None
    hidden: bool = False
    number: bool = False


ago = partial(Column, unit="dateTimeFromNow")
"""A column of times in milliseconds."""

_CHOSEN_CLUSTER = "${datasource:queryparam}&${job:queryparam}&var-cluster=${__data.fields.Cluster}"
CHOSEN_HOST = f"{_CHOSEN_CLUSTER}&var-instance=${{__data.fields.instance}}"
"""The row's host as URL parameters for another dashboard. An empty cell selects hosts without a cluster."""


def detail_link(gpu_column: str = "GPU") -> tuple[str, str]:
    return (
        "Everything about this GPU",
        f"/d/gpu-triage-detail?{CHOSEN_HOST}&var-gpu=${{__data.fields.{gpu_column}}}&${{__url_time_range}}",
    )


CLUSTER = Column("Cluster", label="cluster", no_label="", min_width=70)
"""Shown before each host. Grafana omits the column if no series has the label. Links rely on empty cells."""
HOST = Column("Host", label="instance", min_width=186)
_LONG_NAMES = {
    HOST.label: (("(.{8}).{3,}(.{9})", "$1…$2", PLAIN),),
    "name": (("NVIDIA (.{1,24})", "$1", PLAIN), ("(?:NVIDIA )?(.{12}).{2,}(.{11})", "$1…$2", PLAIN)),
}
"""Of texts for which a column has no room, the beginning and the end, at which most of them differ, by label."""
GPU = Column("GPU", label="gpu", width=60, number=True)
GPU_OR_HOST = replace(GPU, number=False)
"""For tables that have rows about whole hosts too: Grafana makes the number 0 of no text."""

_OWNERS = {
    "workload_namespace": "Namespace",
    "workload_pod": "Pod",
    "workload_container": "Pod's container",
    "slurm_job_id": "Slurm job",
    "user": "User",
    "account": "Account",
}


def owner_columns(*labels: str) -> tuple[Column, ...]:
    return tuple(Column(_OWNERS[label], label=label) for label in labels)


_DERIVED: Mapping[str, Mapping[str, str]] = {
    HOST.label: {"host": SHORT_NAME},
    "owner": {"owner_job": "([^/]+)/|.*", "owner_namespace": "([^/]+)/.+|.*"},
}
"""Labels that the series of a table get if it shows the label that they are derived from, each with the pattern."""
_SHOWN = {HOST.label: "host"}
"""Labels that are shown as another one; their own is for links."""


def _job_link(title: str, **chosen: str) -> tuple[str, str]:
    """A link to the dashboard of a job, with values by name of variable."""
    owner = "&".join(f"var-{name}={value}" for name, value in chosen.items())
    return title, f"/d/gpu-triage-job?{_CHOSEN_CLUSTER}&{owner}&${{__url_time_range}}"


_LINKS: Mapping[str, Sequence[tuple[str, str]]] = {
    HOST.label: (
        ("Diagnose this host", f"/d/gpu-triage-diagnosis?{CHOSEN_HOST}&${{__url_time_range}}"),
        ("CPUs, storage and network of this host", f"/d/gpu-triage-host?{CHOSEN_HOST}&${{__url_time_range}}"),
    ),
    GPU.label: (detail_link(),),
    "owner": (
        _job_link(
            "This job, or those of its namespace",
            slurm_job="${__data.fields.owner_job}",
            namespace="${__data.fields.owner_namespace}",
        ),
    ),
    **{of: (_job_link("What it loses", **{name: "${__value.raw}"}),) for name, (_, of) in OWNER_LABELS.items()},
}
"""Titles and URLs by label of a column."""


def table_of(
    title: str,
    description: str,
    *columns: Column,
    sort: str | Sequence[str] = (),
    size: Size = FULL,
    rows_of: str = "",
    filterable: bool = True,
) -> PanelBuilder:
    """A table panel; queries are joined on the labels they share. A leading minus sign in `sort` sorts descending.

    With `rows_of`, a title of a column, only rows with a value there are shown: a long query chooses them once. What
    is not `filterable` has narrower titles.
    """
    columns = tuple(_with_cluster(columns))
    queries = [column for column in columns if column.expr]
    sort = [sort] if isinstance(sort, str) else sort
    panel = headed(table.Panel(), title, description, size).filterable(filterable=filterable)
    panel = panel.thresholds(limits(base=PLAIN)).show_header(show_header=True)
    for ref, column in zip(refs(len(queries)), queries, strict=True):
        panel = panel.with_target(table_target(ref, _with_derived(column.expr, columns)))
    panel = panel.transformations(_transformations(columns, rows_of))
    order = [*sort, *_last_sorted_by(sort, columns)]
    panel = panel.sort_by([_sorted_by(each) for each in order])
    arrows = {each.removeprefix("-") for each in order}
    for column in columns:
        properties = _properties(column, icons=filterable + (column.title in arrows))
        panel = panel if column.hidden else panel.override_by_name(column.title, properties)
    for label in _for_links(columns):
        panel = panel.override_by_name(label, [_HIDDEN])
    return panel


def matrix(title: str, description: str, expr: str, *, column: str, texts: Texts, size: Size) -> PanelBuilder:
    """A matrix: a row for each host and GPU, a column for each value of a label that is a GPU index.

    Rows and columns are in the order of the numbers; cells of missing pairs are empty.
    """
    panel = headed(table.Panel(), title, description, size)
    panel = panel.thresholds(limits(base=PLAIN)).sort_by([_sorted_by(name) for name in ("Cluster", "Host", "GPU")])
    shown = {"cluster": "Cluster", "host": "Host", "gpu": "GPU"}
    order = [*shown, *map(str, range(MOST_GPUS_OF_HOST))]
    arranged = {
        "excludeByName": {"Time": True, "job": True},
        "indexByName": {name: place for place, name in enumerate(order)},
        "renameByName": shown,
    }
    panel = panel.transformations(
        [
            DataTransformerConfig(id_val="labelsToFields", options={"mode": "columns", "valueLabel": column}),
            DataTransformerConfig(id_val="merge", options={}),
            _as_numbers([GPU.label]),
            DataTransformerConfig(id_val="organize", options=arranged),
        ]
    )
    cells = {"cellOptions": _BACKGROUND, "minWidth": _MATRIX_CELL}
    properties = [DynamicConfigValue(f"custom.{name}", value) for name, value in cells.items()]
    properties.append(DynamicConfigValue("noValue", ""))  # else a GPU beside itself would say why a table is empty
    panel = panel.override_by_field_type("number", [DynamicConfigValue("mappings", mapping(texts)), *properties])
    plain = [DynamicConfigValue("mappings", []), DynamicConfigValue("custom.cellOptions", {"type": "auto"})]
    panel = panel.override_by_name("GPU", [*plain, *_links(GPU), DynamicConfigValue("custom.width", GPU.width)])
    for each in (CLUSTER, HOST):
        panel = panel.override_by_name(each.title, _properties(each))
    panel = panel.override_by_name(HOST.label, [_HIDDEN])
    return panel.with_target(instant_target("A", short(expr)))


MOST_GPUS_OF_HOST = 16


def _with_cluster(columns: Sequence[Column]) -> list[Column]:
    return [each for column in columns for each in ([CLUSTER, column] if column.label == HOST.label else [column])]


def _sorted_by(column: str) -> common.TableSortByFieldState:
    descending = column.startswith("-")
    return common.TableSortByFieldState().display_name(column.removeprefix("-")).desc(descending)


def _with_derived(expr: str, columns: Sequence[Column]) -> str:
    """The query with the labels derived from those that it mentions."""
    for column in columns:
        if re.search(rf'\b{column.label}\b(?!="")', expr):
            for label, pattern in _DERIVED.get(column.label, {}).items():
                expr = derived(expr, label, column.label, pattern)
    return expr


def _for_links(columns: Sequence[Column]) -> list[str]:
    """Labels that only links use."""
    known = [label for each in columns for label in (each.label, *_DERIVED.get(each.label, ())) if each.label]
    return [label for label in known if label not in _fields(columns)]


def _last_sorted_by(sort: Sequence[str], columns: Sequence[Column]) -> list[str]:
    """Else rows that are alike come in the order of the text of their labels, GPU 10 before GPU 2."""
    sorted_by = {each.removeprefix("-") for each in sort}
    return [each.title for each in columns if each.label in {HOST.label, GPU.label} and each.title not in sorted_by]


def _fields(columns: Sequence[Column]) -> Mapping[str, Column]:
    """The columns by the field that has their values."""
    queries = [column for column in columns if column.expr]
    names = iter(["Value"] if len(queries) == 1 else [f"Value #{ref}" for ref in refs(len(queries))])
    return {next(names) if each.expr else _SHOWN.get(each.label, each.label): each for each in columns}


def _transformations(columns: Sequence[Column], rows_of: str) -> list[DataTransformerConfig]:
    fields, numbers = _fields(columns), [column.label for column in columns if column.number]
    shown = {field: column.title for field, column in fields.items() if not column.hidden}
    kept = [*shown, *_for_links(columns)]
    merge = DataTransformerConfig(id_val="merge", options={})
    there = {"config": {"id": "isNotNull", "options": {}}}
    filters = [{"fieldName": field, **there} for field, column in fields.items() if column.title == rows_of]
    chosen = DataTransformerConfig(
        id_val="filterByValue", options={"filters": filters, "type": "include", "match": "all"}
    )
    return [
        *([merge] if sum(bool(column.expr) for column in columns) > 1 else []),
        *([chosen] if filters else []),
        DataTransformerConfig(id_val="filterFieldsByName", options={"include": {"names": kept}}),
        *([_as_numbers(numbers)] if numbers else []),
        DataTransformerConfig(
            id_val="organize",
            options={
                "excludeByName": {},
                "indexByName": {field: place for place, field in enumerate(kept)},
                "renameByName": shown,
            },
        ),
    ]


def _as_numbers(labels: Sequence[str]) -> DataTransformerConfig:
    conversions = [{"targetField": label, "destinationType": "number"} for label in labels]
    return DataTransformerConfig(id_val="convertFieldType", options={"conversions": conversions, "fields": {}})


def _properties(column: Column, *, icons: int = 2) -> list[DynamicConfigValue]:
    found = []
    if column.expr:
        found.append(DynamicConfigValue("unit", column.unit))
    elif not column.number:
        # Labels stay text: with any other unit, Grafana reformats those that look like numbers, 13.0 as 13.
        found.append(DynamicConfigValue("unit", "string"))
        # Without this, Grafana would show the text for an empty table in the cell.
        found.append(DynamicConfigValue("noValue", column.no_label))
    if column.label in _LONG_NAMES:
        found.append(DynamicConfigValue("mappings", patterns(_LONG_NAMES[column.label])))
    if column.expr or column.texts:
        absent = column.absent if column.expr else None
        found.append(DynamicConfigValue("mappings", mapping(column.texts, absent=absent)))
    if column.steps is not None or any(color != PLAIN for _, _, color in column.texts):
        found.append(DynamicConfigValue("custom.cellOptions", _BACKGROUND))
    if column.steps is not None:
        found.append(DynamicConfigValue("thresholds", column.steps.build()))
    if column.decimals is not None:
        found.append(DynamicConfigValue("decimals", column.decimals))
    found += _links(column)
    if column.width is not None:
        found.append(DynamicConfigValue("custom.width", max(column.width, _title_width(column, icons))))
    else:
        least = column.min_width or _USUAL_WIDTHS.get(column.label, _USUAL_WIDTH)
        found.append(DynamicConfigValue("custom.minWidth", max(least, _title_width(column, icons))))
    return found


def _links(column: Column) -> list[DynamicConfigValue]:
    links = [column.link] if column.link else []
    links += [each for each in _LINKS.get(column.label, ()) if each[0] not in dict(links)]
    return [DynamicConfigValue("links", [{"title": title, "url": url} for title, url in links])] if links else []


def _title_width(column: Column, icons: int) -> int:
    """Pixels that the title takes in Grafana's font at 14 pixels, with the icons for filtering and for sorting."""
    return 20 + 20 * icons + math.ceil(sum(10 if letter.isupper() else 7.5 for letter in column.title))
