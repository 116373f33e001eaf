"""All rows of the fault matrix, in the order they are printed.

A new row is a `Row` in the module of its subject: what begins the fault (an injection, a damaged file or a scenario's
event), what the page must say, and whose series it may cost. What it costs exactly is printed, and kept by the test
that holds docs/fault-matrix.md against what was seen; read the diff after ``make regenerate``. Calls
that readers make have their rows by themselves.
"""

from __future__ import annotations

from tests.faults import (
    rows_answers,
    rows_calls,
    rows_driver,
    rows_files,
    rows_gpus,
    rows_host,
    rows_links,
    rows_mig,
    rows_slow,
    rows_xid,
)
from tests.faults.row import Row

ROWS: tuple[Row, ...] = (
    *rows_driver.rows(),
    *rows_gpus.rows(),
    *rows_slow.rows(),
    *rows_calls.rows(),
    *rows_answers.rows(),
    *rows_links.rows(),
    *rows_mig.rows(),
    *rows_xid.rows(),
    *rows_files.rows(),
    *rows_host.rows(),
)
