"""All dashboards as the text of their files."""

from __future__ import annotations

import json
from collections.abc import Mapping

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from dashboards import capacity, detail, diagnosis, fleet
from dashboards.board import Board, build


def boards() -> Mapping[str, Board]:
    """The dashboards by file name."""
    return {
        "diagnosis.json": diagnosis.board(),
        "detail.json": detail.board(),
        "fleet.json": fleet.board(),
        "capacity.json": capacity.board(),
    }


def dashboards() -> dict[str, str]:
    """Text of each file, keys sorted, so that a change of one panel is a change of its lines."""
    return {name: to_text(board) for name, board in boards().items()}


def to_text(board: Board) -> str:
    """A dashboard as JSON."""
    return json.dumps(build(board), cls=JSONEncoder, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
