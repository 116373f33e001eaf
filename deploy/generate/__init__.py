"""Generates rules, docs, dashboards, chart and examples (``python -m deploy.generate``)."""

from pathlib import Path
from typing import Final

REPOSITORY: Final = Path(__file__).resolve().parents[2]
