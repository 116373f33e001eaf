"""All rows of the fault matrix, in the order they are printed."""

from __future__ import annotations

from tests.faults import (
    rows_answers,
    rows_calls,
    rows_driver,
    rows_files,
    rows_gpus,
    rows_host,
    rows_slow,
)
from tests.faults.matrix import Row

ROWS: tuple[Row, ...] = (
    *rows_driver.rows(),
    *rows_gpus.rows(),
    *rows_slow.rows(),
    *rows_calls.rows(),
    *rows_answers.rows(),
    *rows_files.rows(),
    *rows_host.rows(),
)
