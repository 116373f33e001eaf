"""Panel types, one function each, with everything that panels of a type have in common."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar
from zlib import crc32

from grafana_foundation_sdk.builders import common, stat, statetimeline, table, timeseries
from grafana_foundation_sdk.builders.dashboard import DashboardLink as LinkBuilder
from grafana_foundation_sdk.builders.dashboard import FieldColor
from grafana_foundation_sdk.builders.dashboard import ThresholdsConfig as ThresholdsBuilder
from grafana_foundation_sdk.builders.prometheus import Dataquery
from grafana_foundation_sdk.cog.builder import Builder
from grafana_foundation_sdk.models.common import (
    BigValueColorMode,
    BigValueGraphMode,
    BigValueTextMode,
    GraphThresholdsStyleMode,
    LegendDisplayMode,
    LegendPlacement,
    ScaleDistribution,
    SortOrder,
    StackingMode,
    TooltipDisplayMode,
    VisibilityMode,
)
from grafana_foundation_sdk.models.dashboard import (
    DashboardLinkType,
    DataSourceRef,
    DataTransformerConfig,
    DynamicConfigValue,
    FieldColorModeId,
    Panel,
    Threshold,
    ThresholdsMode,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

from dashboards.palette import GOOD, PLAIN
from dashboards.selectors import LEGEND
from dashboards.value_mappings import Texts, mapping, patterns

PanelBuilder = Builder[Panel]

NO_DATA: Final = "No data: "
"""Begins the last sentence of a description, which is what the panel shows without data. It gives the reason."""

DETAIL_LINK: Final = (
    "/d/gpu-triage-detail?${datasource:queryparam}"
    "&var-cluster=${__field.labels.cluster}&var-job=${__field.labels.job}"
    "&var-instance=${__field.labels.instance}&var-gpu=${__field.labels.gpu}&${__url_time_range}"
)


@dataclass(frozen=True, slots=True)
class Query:
    """One query of a panel: PromQL, the legend of its series, and whether they are limits of what is measured.

    Limits are dashed and not in the legend, which they would lead: it begins with the highest or lowest series.
    """

    expr: str
    legend: str = LEGEND
    limit: bool = False


@dataclass(frozen=True, slots=True)
class Size:
    """Width in columns (of 24), and height in rows of 38 pixels."""

    width: int
    height: int


SMALL: Final = Size(6, 7)
MEDIUM: Final = Size(8, 7)
HALF: Final = Size(12, 8)
FULL: Final = Size(24, 9)


def datasource() -> DataSourceRef:
    return DataSourceRef(type_val="prometheus", uid="${datasource}")


def panel_id(title: str) -> int:
    """A panel id that depends only on the title, so it survives moving the panel."""
    return crc32(title.encode()) % 1_000_000 + 1


def limits(*steps: tuple[float, str], base: str = GOOD) -> ThresholdsBuilder:
    """Thresholds, each with the color that applies from its value up, over a base color."""
    found = [Threshold(value=None, color=base), *(Threshold(value=value, color=color) for value, color in steps)]
    return ThresholdsBuilder().mode(ThresholdsMode.ABSOLUTE).steps(found)


def lines(
    title: str,
    description: str,
    *queries: Query | str,
    unit: str,
    size: Size = MEDIUM,
    floor: float | None = 0,
    top: float | None = None,
    line_at: tuple[float, str] | None = None,
    every: str | None = None,
    stacked: bool = False,
    logarithmic: bool = False,
    low_is_worse: bool = False,
    crowded: bool = False,
    names: Mapping[str, tuple[str, str]] | None = None,
) -> PanelBuilder:
    """A time series panel: `line_at` is a limit to draw, `every` the minimum step, `names` that of series by legend.

    A `floor` or `top` of None is automatic; on a logarithmic axis, 0 is drawn at the bottom. The legend begins with the
    series that was highest, or with the one that was lowest if `low_is_worse`. If it is `crowded`, the names of many
    hosts leave room for one value.
    """
    found = [Query(each) if isinstance(each, str) else each for each in queries]
    panel = headed(timeseries.Panel(), title, description, size).unit(unit)
    panel = panel.fill_opacity(70 if stacked else 4).line_width(0 if stacked else 1)
    panel = panel.show_points(VisibilityMode.NEVER).span_nulls(span_nulls=False)
    worst = "min" if low_is_worse else "max"
    panel = panel.legend(_list() if stacked else _worst_first(worst, crowded=crowded)).tooltip(_tooltip())
    if logarithmic:
        panel = panel.scale_distribution(common.ScaleDistributionConfig().type(ScaleDistribution.LOG).log(10))
    elif floor is not None:
        panel = panel.min(floor)
    if top is not None:
        panel = panel.max(top)
    elif unit == "percentunit" and floor == 0:
        panel = panel.axis_soft_max(1)  # some ratios may be above 1; else, a line at 0 would have any scale
    if stacked:
        panel = panel.stacking(common.StackingConfig().mode(StackingMode.NORMAL).group("A"))
    if line_at is not None:
        value, color = line_at
        style = common.GraphThresholdsStyleConfig().mode(GraphThresholdsStyleMode.DASHED)
        panel = panel.thresholds(limits((value, color), base=PLAIN)).thresholds_style(style)
    if every is not None:
        panel = panel.interval(every)
    for legend, (name, color) in (names or {}).items():
        fixed = {"mode": "fixed", "fixedColor": color}
        panel = panel.override_by_name(
            legend, [DynamicConfigValue("displayName", name), DynamicConfigValue("color", fixed)]
        )
    panel = panel.data_links([_drilldown()]) if all("{{gpu}}" in query.legend for query in found) else panel
    for ref, query in zip(refs(len(found)), found, strict=True):
        panel = panel.with_target(_target(ref, query).range())
        panel = panel.override_by_query(ref, _OF_LIMIT) if query.limit else panel
    return panel


shares: Final = partial(lines, unit="percentunit", top=1)
"""A time series panel of shares that are never above 1."""
_OF_LIMIT: Final = [
    DynamicConfigValue("custom.hideFrom", {"legend": True, "tooltip": False, "viz": False}),
    DynamicConfigValue("custom.lineStyle", {"fill": "dash", "dash": [4, 4]}),
]


def timeline(
    title: str,
    description: str,
    *queries: Query | str,
    texts: Texts,
    size: Size = HALF,
    show_value: VisibilityMode = VisibilityMode.AUTO,
) -> PanelBuilder:
    """A state timeline with one bar per series; `texts` has the names and colors of states."""
    found = [Query(each) if isinstance(each, str) else each for each in queries]
    panel = headed(statetimeline.Panel(), title, description, size).unit("none").decimals(0)
    panel = panel.mappings(mapping(texts)).color_scheme(FieldColor().mode(FieldColorModeId.THRESHOLDS))
    panel = panel.thresholds(limits(base="text")).merge_values(merge_values=True).show_value(show_value)
    panel = panel.per_page(max(1, (38 * size.height - 160) // 13))  # as many rows as have room for their names
    panel = panel.row_height(0.85).line_width(0).fill_opacity(85).legend(_list()).tooltip(_tooltip())
    panel = panel.data_links([_drilldown()]) if all("{{gpu}}" in query.legend for query in found) else panel
    for ref, query in zip(refs(len(found)), found, strict=True):
        panel = panel.with_target(_target(ref, query).range())
    return panel


def tile(
    title: str,
    description: str,
    expr: str,
    *,
    unit: str,
    size: Size = SMALL,
    texts: Texts = (),
    steps: ThresholdsBuilder | None = None,
    links: Sequence[tuple[str, str]] = (),
    decimals: int | None = None,
    graph: bool = False,
    legend: str = "",
) -> PanelBuilder:
    """A stat panel with one number or word; `links` are titles and URLs, and a click opens the first.

    With a `legend`, it shows what the number is about as well.
    """
    panel = headed(stat.Panel(), title, description, size).unit(unit)
    panel = panel.mappings(mapping(texts)).thresholds(steps or limits(base=PLAIN if texts else "text"))
    panel = panel.color_scheme(FieldColor().mode(FieldColorModeId.THRESHOLDS))
    panel = panel.color_mode(BigValueColorMode.BACKGROUND_SOLID if texts or steps else BigValueColorMode.VALUE)
    panel = panel.graph_mode(BigValueGraphMode.AREA if graph else BigValueGraphMode.NONE)
    panel = panel.text_mode(BigValueTextMode.VALUE_AND_NAME if legend else BigValueTextMode.VALUE)
    panel = panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    if decimals is not None:
        panel = panel.decimals(decimals)
    if links:
        panel = panel.links([_link(*link) for link in links]).data_links([_link(*link) for link in links])
    # Else the graph begins at its lowest value, and any drop looks like one to nothing.
    panel = panel.min(0) if graph else panel
    target = _target("A", Query(expr, legend))
    return panel.with_target(target.range() if graph else target.instant())


@dataclass(frozen=True, slots=True)
class Cell:
    """One value of a strip.

    Attributes:
        title: above the value.
        expr: query of one value.
        unit: in Grafana's notation.
        texts: texts and colors by value.
        steps: thresholds that color it.
        decimals: None for automatic.
        links: titles and URLs; a click offers them.
    """

    title: str
    expr: str
    unit: str = "none"
    texts: Texts = ()
    steps: ThresholdsBuilder | None = None
    decimals: int | None = None
    links: Sequence[tuple[str, str]] = ()


def strip(title: str, description: str, *cells: Cell, size: Size) -> PanelBuilder:
    """Values in one stat panel, side by side: no more than have room on a phone. Absent ones are left out."""
    panel = _strip(title, description, size)
    panel = panel.reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    for ref, cell in zip(refs(len(cells)), cells, strict=True):
        panel = panel.with_target(_target(ref, Query(cell.expr, cell.title)).instant())
        panel = panel.override_by_query(ref, _cell_properties(cell))
    return panel


def worded_strip(title: str, description: str, *cells: Cell, label: str, texts: Texts, size: Size) -> PanelBuilder:
    """A strip of words: each query's series carry the word in a label. A cell with a unit shows the value instead.

    `texts` has patterns, words and background colors.
    """
    panel = _strip(title, description, size)
    panel = panel.reduce_options(common.ReduceDataOptions().values(values=True).limit(2 * len(cells)).fields("/.*/"))
    panel = panel.mappings(patterns(texts))
    shown = [
        label,
        *(f"Value #{ref}" for ref, cell in zip(refs(len(cells)), cells, strict=True) if cell.unit != "none"),
    ]
    include = {"include": {"names": shown}}
    panel = panel.transformations([DataTransformerConfig(id_val="filterFieldsByName", options=include)])
    for ref, cell in zip(refs(len(cells)), cells, strict=True):
        panel = panel.with_target(table_target(ref, cell.expr))
        panel = panel.override_by_query(ref, _cell_properties(cell))
    return panel


def _strip(title: str, description: str, size: Size) -> stat.Panel:
    panel = headed(stat.Panel(), title, description, size).unit("none")
    panel = panel.graph_mode(BigValueGraphMode.NONE).text_mode(BigValueTextMode.VALUE_AND_NAME)
    panel = panel.text(common.VizTextDisplayOptions().title_size(13).value_size(16))
    panel = panel.color_mode(BigValueColorMode.BACKGROUND_SOLID)
    return panel.thresholds(limits(base=PLAIN)).color_scheme(FieldColor().mode(FieldColorModeId.THRESHOLDS))


def _cell_properties(cell: Cell) -> list[DynamicConfigValue]:
    found = [DynamicConfigValue("displayName", cell.title)]
    if cell.unit != "none":
        found.append(DynamicConfigValue("unit", cell.unit))
    if cell.texts:
        found.append(DynamicConfigValue("mappings", mapping(cell.texts)))
    if cell.steps is not None:
        found.append(DynamicConfigValue("thresholds", cell.steps.build()))
    if cell.decimals is not None:
        found.append(DynamicConfigValue("decimals", cell.decimals))
    if cell.links:
        found.append(DynamicConfigValue("links", [{"title": name, "url": url} for name, url in cell.links]))
    return found


_Panel = TypeVar("_Panel", stat.Panel, statetimeline.Panel, table.Panel, timeseries.Panel)


def headed(panel: _Panel, title: str, description: str, size: Size) -> _Panel:
    """The panel with what all types have: the last sentence of its description, a reason, is shown without data."""
    meaning, _, reason = description.partition(NO_DATA)
    empty = f"{NO_DATA}{reason.removesuffix('.')}" if reason else NO_DATA.rstrip(": ")
    panel = panel.id(panel_id(title)).title(title).description(meaning.strip()).no_value(empty)
    return panel.span(size.width).height(size.height).datasource(datasource())


def refs(count: int) -> str:
    """Query names: A, B, C and so on."""
    return "ABCDEFGHIJKLMNOPQRSTUVWXYZ"[:count]


def table_target(ref: str, expr: str) -> Dataquery:
    """An instant query at the end of the time range, with series as table rows."""
    return _target(ref, Query(expr, "")).instant().format(PromQueryFormat.TABLE)


def instant_target(ref: str, expr: str) -> Dataquery:
    """An instant query at the end of the time range, with one frame per series."""
    return _target(ref, Query(expr, "")).instant()


def _drilldown() -> LinkBuilder:
    return _link("Everything about this GPU", DETAIL_LINK)


def _target(ref: str, query: Query) -> Dataquery:
    """A query without a data source: it uses the panel's, which keeps the file small."""
    return Dataquery().ref_id(ref).expr(query.expr).legend_format(query.legend)


def _link(title: str, url: str) -> LinkBuilder:
    return LinkBuilder(title).type(DashboardLinkType.LINK).url(url)


def _list() -> common.VizLegendOptions:
    legend = common.VizLegendOptions().show_legend(show_legend=True).placement(LegendPlacement.BOTTOM)
    return legend.display_mode(LegendDisplayMode.LIST)


def _worst_first(extreme: str, *, crowded: bool) -> common.VizLegendOptions:
    """A table sorted by the extreme of each series, ``min`` or ``max``, which alone is there if it is crowded."""
    legend = _list().display_mode(LegendDisplayMode.TABLE).calcs([extreme] if crowded else ["lastNotNull", extreme])
    return legend.sort_by(extreme.capitalize()).sort_desc(extreme == "max")


def _tooltip() -> common.VizTooltipOptions:
    return common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING)
