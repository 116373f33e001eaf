"""Files of pressure stall information, which the kernel has of the host and of each cgroup.

Source: https://docs.kernel.org/accounting/psi.html
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from gpu_triage.driver.kernel.files import parse_count

RESOURCES: Final = ("cpu", "io", "memory")
"""What tasks may wait for; the names of the files."""

KINDS: Final = ("some", "full")
"""Whether at least one task waited, or every task with work to do."""

_MICROSECONDS_PER_SECOND: Final = 1_000_000


def parse_pressure(text: str) -> Mapping[str, float]:
    """Parse seconds by kind from lines like ``some avg10=0.00 avg60=0.00 avg300=0.00 total=3407564`` (µs).

    >>> parse_pressure("some avg10=0.00 avg60=0.00 avg300=0.00 total=3407564")
    {'some': 3.407564}

    Raises:
            ValueError: a line has another format, or the file is empty.
    """
    seconds: dict[str, float] = {}
    for line in text.strip().split("\n"):
        kind, *pairs = line.split() or [""]
        facts = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
        if kind not in KINDS or "total" not in facts:
            raise ValueError(f"{line[:80]!r} is not a line of a pressure file")
        seconds[kind] = parse_count(facts["total"]) / _MICROSECONDS_PER_SECOND
    return seconds
