"""Table panels: one row per GPU, host, link or finding, one column per query or label."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.builders import common, table
from grafana_foundation_sdk.builders.dashboard import ThresholdsConfig
from grafana_foundation_sdk.models.dashboard import DataTransformerConfig, DynamicConfigValue

from dashboards.panels import FULL, PanelBuilder, Size, headed, instant_target, limits, refs, table_target
from dashboards.value_mappings import PLAIN, Texts, mapping

ABSENT = "N/A"
"""Cell text if the GPU doesn't report the value."""
NO_LABEL = "-"
"""Cell text if the series lacks the label, such as the GPU of a host finding."""

_MATRIX_CELL = 64
"""Width in pixels, so that the eight GPUs of a host fit side by side."""
_BACKGROUND = {"type": "color-background", "mode": "basic"}


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
        link: title and URL opened by a click.
        width: in pixels; None for an equal share of the remaining width.
        min_width: in pixels, for a column without a width; None for Grafana's 150.
        decimals: None for automatic.
        hidden: whether the value isn't shown: the query only provides rows, and labels for other columns.
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


CHOSEN_HOST = (
    "${datasource:queryparam}&var-cluster=${__data.fields.Cluster}&var-job=$job&var-instance=${__data.fields.Host}"
)
"""The row's host as URL parameters for another dashboard. An empty cell selects hosts without a cluster."""


def detail_link(gpu_column: str = "GPU") -> tuple[str, str]:
    return (
        "Everything about this GPU",
        f"/d/gpu-triage-detail?{CHOSEN_HOST}&var-gpu=${{__data.fields.{gpu_column}}}&${{__url_time_range}}",
    )


CLUSTER = Column("Cluster", label="cluster", no_label="", min_width=70)
"""Shown before each host. Grafana omits the column if no series has the label. Links rely on empty cells."""
HOST = Column("Host", label="instance", min_width=170)
"""Wide enough for names that differ only at their end."""
NARROW_HOST = Column("Host", label="instance", min_width=100)
GPU = Column("GPU", label="gpu", link=detail_link(), width=60)


def table_of(
    title: str, description: str, *columns: Column, sort: str | Sequence[str] = (), size: Size = FULL
) -> PanelBuilder:
    """A table panel; queries are joined on the labels they share. A leading minus sign in `sort` sorts descending."""
    columns = tuple(_with_cluster(columns))
    queries = [column for column in columns if column.expr]
    fields = _fields(columns)
    panel = headed(table.Panel(), title, description, size).filterable(filterable=True)
    panel = panel.unit("none").thresholds(limits(base="text")).show_header(show_header=True)
    for ref, column in zip(refs(len(queries)), queries, strict=True):
        panel = panel.with_target(table_target(ref, column.expr))
    panel = panel.transformations(_transformations(fields, joined=len(queries) > 1))
    if sort:
        panel = panel.sort_by([_sorted_by(each) for each in ([sort] if isinstance(sort, str) else sort)])
    for column in columns:
        panel = panel if column.hidden else panel.override_by_name(column.title, _properties(column))
    return panel


def matrix(title: str, description: str, expr: str, *, column: str, texts: Texts, size: Size) -> PanelBuilder:
    """A matrix: a row for each host and GPU, a column for each value of a label that is a GPU index.

    Rows and columns are in the order of the numbers; cells of missing pairs are empty.
    """
    panel = headed(table.Panel(), title, description, size).unit("none")
    panel = panel.thresholds(limits(base="text")).sort_by([_sorted_by(name) for name in ("Cluster", "Host", "GPU")])
    shown = {"cluster": "Cluster", "instance": "Host", "gpu": "GPU"}
    order = [*shown, *map(str, range(MOST_GPUS_OF_HOST))]
    arranged = {
        "excludeByName": {"Time": True, "job": True},
        "indexByName": {name: place for place, name in enumerate(order)},
        "renameByName": shown,
    }
    numbers = {"conversions": [{"targetField": "gpu", "destinationType": "number"}], "fields": {}}
    panel = panel.transformations(
        [
            DataTransformerConfig(id_val="labelsToFields", options={"mode": "columns", "valueLabel": column}),
            DataTransformerConfig(id_val="merge", options={}),
            DataTransformerConfig(id_val="convertFieldType", options=numbers),
            DataTransformerConfig(id_val="organize", options=arranged),
        ]
    )
    cells = {"cellOptions": _BACKGROUND, "minWidth": _MATRIX_CELL}
    properties = [DynamicConfigValue(f"custom.{name}", value) for name, value in cells.items()]
    properties.append(DynamicConfigValue("noValue", ""))  # else a GPU beside itself would say why a table is empty
    panel = panel.override_by_field_type("number", [DynamicConfigValue("mappings", mapping(texts)), *properties])
    plain = [DynamicConfigValue("mappings", []), DynamicConfigValue("custom.cellOptions", {"type": "auto"})]
    panel = panel.override_by_name("GPU", [*plain, DynamicConfigValue("custom.width", GPU.width)])
    for each in (CLUSTER, HOST):
        panel = panel.override_by_name(each.title, _properties(each))
    return panel.with_target(instant_target("A", expr))


MOST_GPUS_OF_HOST = 16


def _with_cluster(columns: Sequence[Column]) -> list[Column]:
    return [each for column in columns for each in ([CLUSTER, column] if column.label == HOST.label else [column])]


def _sorted_by(column: str) -> common.TableSortByFieldState:
    descending = column.startswith("-")
    return common.TableSortByFieldState().display_name(column.removeprefix("-")).desc(descending)


def _fields(columns: Sequence[Column]) -> Mapping[str, str]:
    """Titles of the columns that are shown, by the field that has their values."""
    queries = [column for column in columns if column.expr]
    names = iter(["Value"] if len(queries) == 1 else [f"Value #{ref}" for ref in refs(len(queries))])
    fields = [(next(names) if column.expr else column.label, column) for column in columns]
    return {field: column.title for field, column in fields if not column.hidden}


def _transformations(fields: Mapping[str, str], *, joined: bool) -> list[DataTransformerConfig]:
    merge = [DataTransformerConfig(id_val="merge", options={})] if joined else []
    return [
        *merge,
        DataTransformerConfig(id_val="filterFieldsByName", options={"include": {"names": list(fields)}}),
        DataTransformerConfig(
            id_val="organize",
            options={
                "excludeByName": {},
                "indexByName": {field: place for place, field in enumerate(fields)},
                "renameByName": dict(fields),
            },
        ),
    ]


def _properties(column: Column) -> list[DynamicConfigValue]:
    found = []
    if column.expr:
        found.append(DynamicConfigValue("unit", column.unit))
    else:
        # Without this, Grafana would show the text for an empty table in the cell.
        found.append(DynamicConfigValue("noValue", column.no_label))
    if column.expr or column.texts:
        absent = column.absent if column.expr else None
        found.append(DynamicConfigValue("mappings", mapping(column.texts, absent=absent)))
    if column.steps is not None or any(color != PLAIN for _, _, color in column.texts):
        found.append(DynamicConfigValue("custom.cellOptions", _BACKGROUND))
    if column.steps is not None:
        found.append(DynamicConfigValue("thresholds", column.steps.build()))
    if column.decimals is not None:
        found.append(DynamicConfigValue("decimals", column.decimals))
    if column.link is not None:
        title, url = column.link
        found.append(DynamicConfigValue("links", [{"title": title, "url": url}]))
    if column.width is not None:
        found.append(DynamicConfigValue("custom.width", column.width))
    if column.min_width is not None:
        found.append(DynamicConfigValue("custom.minWidth", column.min_width))
    return found
