"""All dashboards as JSON files."""

import json
from collections.abc import Mapping
from typing import Any

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
    return json.dumps(build(board), cls=_Encoder, indent=2, sort_keys=True, ensure_ascii=False) + "\n"


class _Encoder(JSONEncoder):
    """Leaves out what is Grafana's default: with kubectl, an object must not have more than 256 KiB."""

    def default(self, obj: Any) -> Any:
        found = super().default(obj)
        return {name: value for name, value in found.items() if (name, value) not in _DEFAULTS}


_DEFAULTS = (("repeatDirection", "h"), ("transparent", False), ("range", False), ("instant", False))
