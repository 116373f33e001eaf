"""All rows of the fault matrix, in the order they are printed.

A new row is a `Row` in the module of its subject: what begins the fault (an injection, a damaged file or a scenario's
event), what the page must say, and whose series it may cost. ``make fault-matrix`` prints what it costs exactly. Calls
that readers make have their rows by themselves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby

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
from tests.faults.rows_calls import ONE_CALL
from tests.faults.rows_driver import COUNT, HANDLE, INIT

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


def brief(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Some of the rows, in their order, that `make test` has time for: about a quarter.

    Every call fails once, and so does every way to reach the driver with every kind of code. Of each other group: a row
    for each moment, their faults in turn, where rows share a stage; and one of those that need a stage of their own.
    """
    chosen: set[str] = set()
    for group, members in groupby(sorted(rows, key=lambda row: row.group), key=lambda row: row.group):
        of_group = tuple(members)
        chosen |= {row.key for row in (of_group if group in _WHOLE else _one_of_each(of_group))}
    return tuple(row for row in rows if row.key in chosen)


_WHOLE = frozenset({ONE_CALL, INIT, COUNT, HANDLE})


def _one_of_each(rows: tuple[Row, ...]) -> Iterator[Row]:
    yield from [row for row in rows if not row.shared][:1]
    shared = [row for row in rows if row.shared]
    used: Counter[str] = Counter()
    for moment in dict.fromkeys(row.moment for row in shared):
        row = min((row for row in shared if row.moment == moment), key=lambda row: used[row.fault])
        used[row.fault] += 1
        yield row


BRIEF = brief(ROWS)
