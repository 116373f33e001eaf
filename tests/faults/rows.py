"""All rows of the fault matrix.

A new row is a `Row` in the module of its subject: what begins the fault (an injection, a damaged file or a scenario's
event), what the page must say, and whose series it may cost. Calls that readers make have
their rows by themselves.
"""

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
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
from tests.faults.rows_calls import ONE_CALL, ONE_CODE
from tests.faults.rows_driver import COUNT, HANDLE, INIT
from tests.faults.rows_files import FILES

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


def default_samples(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Some of the rows, in their order, that `make test` has time for: about a seventh.

    Every way to reach the driver fails with every kind of code. Of each other group: a call of each collector, each
    kind of code, each damage of a file, or each moment, where rows share a stage; and one of those that need their own.
    """
    chosen: set[str] = set()
    for group, members in groupby(sorted(rows, key=lambda row: row.group), key=lambda row: row.group):
        of_group = tuple(members)
        chosen |= {row.key for row in (of_group if group in _WHOLE else _one_of_each(of_group))}
    return tuple(row for row in rows if row.key in chosen)


_WHOLE = frozenset({INIT, COUNT, HANDLE})
_A_ROW_FOR_EACH_CALLER = frozenset({ONE_CALL})
_A_ROW_FOR_EACH_FAULT = frozenset({ONE_CODE, FILES})


def _one_of_each(rows: tuple[Row, ...]) -> Iterator[Row]:
    yield from [row for row in rows if not row.shared][:1]
    shared = [row for row in rows if row.shared]
    used: Counter[str] = Counter()
    for case in dict.fromkeys(map(_case, shared)):
        row = min((row for row in shared if _case(row) == case), key=lambda row: used[row.fault] + used[row.moment])
        used.update((row.fault, row.moment))
        yield row


def _case(row: Row) -> Hashable:
    """What `make test` plays once of a group."""
    if row.group in _A_ROW_FOR_EACH_CALLER:
        return str(row.says)
    return row.fault if row.group in _A_ROW_FOR_EACH_FAULT else row.moment


BRIEF = default_samples(ROWS)
