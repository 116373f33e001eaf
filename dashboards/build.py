"""All dashboards as JSON files."""

import json
from collections.abc import Mapping

from grafana_foundation_sdk.cog.encoder import JSONEncoder

from dashboards import capacity, detail, diagnosis, fleet, host, job
from dashboards.board import Board, build


def boards() -> Mapping[str, Board]:
    return {
        "diagnosis.json": diagnosis.board(),
        "job.json": job.board(),
        "detail.json": detail.board(),
        "host.json": host.board(),
        "fleet.json": fleet.board(),
        "capacity.json": capacity.board(),
    }


def dashboards() -> dict[str, str]:
    """JSON text by file name, with sorted keys for small diffs."""
    return {name: to_text(board) for name, board in boards().items()}


def to_text(board: Board) -> str:
    return json.dumps(build(board), cls=JSONEncoder, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
