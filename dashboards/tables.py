"""Tables: one row a GPU, host, link or finding, one column a query or a label."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from grafana_foundation_sdk.builders import common, table
from grafana_foundation_sdk.builders.dashboard import ThresholdsConfig
from grafana_foundation_sdk.models.dashboard import DataTransformerConfig, DynamicConfigValue

from dashboards.panels import BROKEN, FULL, PanelBuilder, Size, datasource, limits, panel_id, refs, table_target
from dashboards.words import PLAIN, Words, mapping

ABSENT = "N/A"
"""What a cell says if the GPU does not report the value."""
NO_LABEL = "-"
"""What a cell says if the series does not have the label, such as the GPU of a finding about a host."""

_MATRIX_CELL = 64
"""Width in pixels: the eight GPUs of a host fit beside each other."""
_BACKGROUND = {"type": "color-background", "mode": "basic"}


@dataclass(frozen=True, slots=True)
class Column:
    """A column.

    Attributes:
        title: its head.
        label: the label it shows; "" for the value of a query.
        expr: the query; its labels beside those of other columns' queries are columns of their own, if named.
        unit: Grafana's.
        words: texts and colours of values, or of the label's words.
        absent: what a cell without a value says.
        no_label: what a cell of a series without the label says.
        steps: thresholds that colour the cell.
        link: title and address of what a click opens.
        width: in pixels; None: an equal share of what the other columns leave.
        min_width: in pixels, of a column without a width; None: Grafana's 150.
        decimals: None as needed.
    """

    title: str
    label: str = ""
    expr: str = ""
    unit: str = "none"
    words: Words = ()
    absent: str = ABSENT
    no_label: str = NO_LABEL
    steps: ThresholdsConfig | None = None
    link: tuple[str, str] | None = None
    width: int | None = None
    min_width: int | None = None
    decimals: int | None = None


CHOSEN_HOST = (
    "${datasource:queryparam}&var-cluster=${__data.fields.Cluster}&var-job=$job&var-instance=${__data.fields.Host}"
)
"""The host of the row, as parameters of a link to another dashboard. An empty cell chooses hosts without a cluster."""


def detail_link(gpu_column: str = "GPU") -> tuple[str, str]:
    """Opens everything about the GPU of the row."""
    return (
        "Everything about this GPU",
        f"/d/gpu-triage-detail?{CHOSEN_HOST}&var-gpu=${{__data.fields.{gpu_column}}}&${{__url_time_range}}",
    )


CLUSTER = Column("Cluster", label="cluster", no_label="", min_width=70)
"""Before each host. Grafana leaves the column out if no series has the label. Links need an empty cell to be empty."""
HOST = Column("Host", label="instance")
NARROW_HOST = Column("Host", label="instance", min_width=100)
GPU = Column("GPU", label="gpu", link=detail_link(), width=62)


def table_of(
    title: str,
    description: str,
    columns: Sequence[Column],
    *,
    sort: str | Sequence[str] = (),
    size: Size = FULL,
    empty: str = BROKEN,
) -> PanelBuilder:
    """A table.

    Args:
        title: also what the panel's number is made of.
        description: what it means and what to decide.
        columns: in their order; queries are joined on the labels they share.
        sort: titles of the columns to sort by, the first one first; with a minus sign before it, the largest on top.
        size: of the panel.
        empty: what stands there instead of an empty table.
    """
    columns = _with_cluster(columns)
    queries = [column for column in columns if column.expr]
    fields = _fields(columns)
    panel = table.Panel().id(panel_id(title)).title(title).description(description).no_value(empty)
    panel = panel.span(size.width).height(size.height).datasource(datasource()).filterable(filterable=True)
    panel = panel.unit("none").thresholds(limits(base="text")).show_header(show_header=True)
    for ref, column in zip(refs(len(queries)), queries, strict=True):
        panel = panel.with_target(table_target(ref, column.expr))
    panel = panel.transformations(_transformations(fields, joined=len(queries) > 1))
    if sort:
        panel = panel.sort_by([_sorted_by(each) for each in ([sort] if isinstance(sort, str) else sort)])
    for column in columns:
        panel = panel.override_by_name(column.title, _properties(column))
    return panel


def matrix(
    title: str,
    description: str,
    expr: str,
    *,
    row: str,
    column: str,
    words: Words,
    size: Size,
) -> PanelBuilder:
    """A value for each pair of two labels; the pairs that do not exist are empty."""
    panel = table.Panel().id(panel_id(title)).title(title).description(description).no_value(BROKEN)
    panel = panel.span(size.width).height(size.height).datasource(datasource()).unit("none")
    panel = panel.mappings(mapping(words, absent="-")).thresholds(limits(base="text"))
    options = {"rowField": row, "columnField": column, "valueField": "Value", "emptyValue": "null"}
    panel = panel.transformations([DataTransformerConfig(id_val="groupingToMatrix", options=options)])
    cells = [DynamicConfigValue("custom.cellOptions", _BACKGROUND), DynamicConfigValue("custom.minWidth", _MATRIX_CELL)]
    panel = panel.override_by_field_type("number", cells)
    return panel.with_target(table_target("A", expr))


def _with_cluster(columns: Sequence[Column]) -> list[Column]:
    """The columns with the cluster before each host."""
    return [each for column in columns for each in ([CLUSTER, column] if column.label == HOST.label else [column])]


def _sorted_by(column: str) -> common.TableSortByFieldState:
    descending = column.startswith("-")
    return common.TableSortByFieldState().display_name(column.removeprefix("-")).desc(descending)


def _fields(columns: Sequence[Column]) -> Mapping[str, str]:
    """Title of each column by the name its field has in the answer."""
    queries = [column for column in columns if column.expr]
    names = iter(["Value"] if len(queries) == 1 else [f"Value #{ref}" for ref in refs(len(queries))])
    return {next(names) if column.expr else column.label: column.title for column in columns}


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
        # Without this, Grafana fills the cell with the text of an empty table.
        found.append(DynamicConfigValue("noValue", column.no_label))
    if column.expr or column.words:
        absent = column.absent if column.expr else None
        found.append(DynamicConfigValue("mappings", mapping(column.words, absent=absent)))
    if column.steps is not None or any(colour != PLAIN for _, _, colour in column.words):
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
