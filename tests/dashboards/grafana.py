"""Dashboards as Grafana reads them: panels and queries of the JSON, and variables put into queries."""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dashboards.board import OF_GPU_VARIABLE, OF_HOST_VARIABLE
from dashboards.selectors import OF_HOST

from gpu_triage_simulator.clocks import START_OF_TIME

FOLDER = Path(__file__).resolve().parents[2] / "dashboards"
FILES = ("diagnosis.json", "job.json", "detail.json", "host.json", "fleet.json", "capacity.json")

LEGEND_PARTS = {OF_HOST_VARIABLE: OF_HOST, OF_GPU_VARIABLE: "GPU {{gpu}}"}

RATE_INTERVAL = "4m"
"""Four scrape intervals, as Grafana has it at this resolution."""
INTERVAL = "1m"

SHORT_DAYS = 30
"""Minutes of a review of three days, unless another period is chosen: histories of hours have no midnights."""

_BUILT_IN = re.compile(r"\$([A-Za-z_]\w*)|\$\{(\w+)(?::\w+)?\}")


@dataclass(frozen=True, slots=True)
class Target:
    """One query of a panel."""

    file: str  # of the dashboard
    panel: Mapping[str, Any]  # the panel as JSON
    ref: str  # the query's letter
    expr: str  # PromQL with variables
    legend: str  # name of each series, with ``{{label}}``
    instant: bool  # whether it asks for one moment

    @property
    def name(self) -> str:
        return f"{self.file.removesuffix('.json')}: {title_of(self.panel)} {self.ref}"


def read(file: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((FOLDER / file).read_text(encoding="utf-8"))
    return found


def rows(board: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The rows; a collapsed one keeps its panels inside."""
    return [panel for panel in board["panels"] if panel["type"] == "row"]


def panels(board: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Every panel, those in collapsed rows included, without the rows themselves."""
    for panel in board["panels"]:
        if panel["type"] == "row":
            yield from panel.get("panels") or ()
        else:
            yield panel


def targets(file: str) -> list[Target]:
    return [
        Target(file, panel, each["refId"], each["expr"], _legend(each), each.get("instant", False))
        for panel in panels(read(file))
        for each in panel["targets"]
    ]


def _legend(target: Mapping[str, Any]) -> str:
    """The legend while several hosts and GPUs are selected."""
    text: str = target.get("legendFormat", "")
    for variable, words in LEGEND_PARTS.items():
        text = text.replace(f"${variable}", words)
    return text


def all_targets() -> list[Target]:
    return [target for file in FILES for target in targets(file)]


def title_of(panel: Mapping[str, Any]) -> str:
    """Without the variable that says of how many the rows are the worst."""
    title: str = panel["title"]
    return title.partition("$")[0]


FIRST_LINES = (900 - 250) // 38
"""Of the grid, on a window of 900 lines: browser and Grafana's own bars take some 250."""


def first_screen(board: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The panels that are there without scrolling or unfolding, at least with their first rows."""
    begins = FIRST_LINES - 4
    return [panel for panel in board["panels"] if panel["type"] != "row" and panel["gridPos"]["y"] <= begins]


def shown_as(target: Target, name: str, labels: Mapping[str, str], value: float) -> list[str]:
    """What a column or tile shows of a series: words or number of its query and labels, or its label's value."""
    if name in {
        column_title(target),
        target.legend,
        properties_of(target.panel).get(target.ref, {}).get("displayName"),
    }:
        return [word_of(target, value), *labels.values()]
    organized = (each["options"] for each in target.panel.get("transformations", ()) if each["id"] == "organize")
    return [
        labels.get(label, "") for each in organized for label, title in each["renameByName"].items() if title == name
    ]


def find(file: str, title: str) -> Target:
    return next(target for target in targets(file) if title_of(target.panel) == title)


def column(file: str, panel: str, title: str) -> Target:
    return next(each for each in targets(file) if title_of(each.panel) == panel and column_title(each) == title)


def substitute(expr: str, range_seconds: float, **chosen: str) -> str:
    """The query as Grafana sends it.

    Args:
        chosen: values of the dashboard's variables; without one, all: the variable's own word for that.
    """
    values = {
        "__rate_interval": RATE_INTERVAL,
        "__interval": INTERVAL,
        "__range": f"{range_seconds:g}s",
        "job": ".+",
        "instance": ".+",
        "hosts": ".+",
        "gpus": ".*",
        "domain": "",
        **dict.fromkeys(("owners", "slowest", "worst", "slow_hosts"), ".*"),
        "ended": f"{START_OF_TIME + 1501:.0f}",  # with no sample at the very beginning of a window
        "lasted": "1500",
        **dict.fromkeys(("cluster", "gpu", "namespace", "pod", "slurm_job", "user"), ".*"),
        "pod_label": "label_team",
        "over": f"{SHORT_DAYS}m",
        **dict(zip(("price", "kwh_price", "pue"), ("2.5", "0.5", "1.5"), strict=True)),
        "__to": f"{1000 * (START_OF_TIME + range_seconds):.0f}",
        **chosen,
    }
    written = _BUILT_IN.sub(lambda found: values[found[1] or found[2]], expr)
    short = SHORT_DAYS // 3
    written = written.replace(f"[{SHORT_DAYS}m86400s:1d]", f"[{SHORT_DAYS + short}m:{short}m]")
    return written.replace(f"[{SHORT_DAYS}m:1d]", f"[{SHORT_DAYS}m:{short}m]")


def hidden_query(file: str, name: str) -> str:
    """The query of a hidden variable."""
    (variable,) = (each for each in read(file)["templating"]["list"] if each["name"] == name)
    query: str = variable["query"]["query"]
    return query.removeprefix("query_result(").removesuffix(")")


def properties_of(panel: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """What is set for each column, query or series, by its name."""
    return {
        each["matcher"]["options"]: {one["id"]: one["value"] for one in each["properties"]}
        for each in panel["fieldConfig"]["overrides"]
    }


def word_of(target: Target, value: float) -> str:
    """What the panel writes for a value of a query: its word, or the number."""
    number = f"{value:g}"
    return words_of(target).get(number, (number, ""))[0]


def words_of(target: Target) -> dict[str, tuple[str, str]]:
    """Text and color of each value of a query that its panel has a word for: a table's for the query's own column.

    Lines that are named after a value have it as the name of a series.
    """
    panel = target.panel
    found = properties_of(panel)
    if panel["type"] == "timeseries":
        return {
            legend: (properties["displayName"], properties["color"]["fixedColor"])
            for legend, properties in found.items()
            if "displayName" in properties
        }
    mappings = panel["fieldConfig"]["defaults"].get("mappings", ())
    if panel["type"] == "table":
        mappings = found.get(column_title(target), {}).get("mappings", ())
    if panel["type"] == "stat" and target.ref in found:  # of several values
        mappings = found[target.ref].get("mappings", ())
    return {
        value: (result["text"], result["color"])
        for mapping in mappings
        if mapping["type"] == "value"
        for value, result in mapping["options"].items()
    }


def column_title(target: Target) -> str:
    """The title of the column of a table that shows a query's value; "" if none does."""
    if target.panel["type"] != "table":
        return ""
    (renamed,) = (
        each["options"]["renameByName"] for each in target.panel["transformations"] if each["id"] == "organize"
    )
    title: str = renamed.get("Value" if len(target.panel["targets"]) == 1 else f"Value #{target.ref}", "")
    return title
