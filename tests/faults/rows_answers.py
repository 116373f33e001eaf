"""Rows of answers that cannot be true."""

from collections.abc import Iterator

from tests.faults.hosts import EVERY_SECOND
from tests.faults.injections import Begin, counting, garbled, with_fields
from tests.faults.library import every_collector
from tests.faults.row import ALL_WELL, Row, Says, Within

FIELDS = "Field ids mean something else in this driver"
GARBAGE = "Every answer is garbage"
ABSURD = "A counter reads an absurd value for a moment"

_SLOWDOWN = frozenset({269, 270, 271})
_PCIE_BYTES = frozenset({197, 198})
_SEEDS = 3
_NANOSECONDS = 10**9


def rows() -> Iterator[Row]:
    yield _fields(
        "the throttle counters run ten times as fast as time",
        with_fields(_SLOWDOWN, lambda seconds, _value: seconds * 10 * _NANOSECONDS),
        Says(errors=frozenset({"throttle: implausible"})),
        leaves=frozenset({"gpu_throttle_counter_rejected_info"}),
    )
    yield _fields(
        "the throttle counters stand at a huge value",
        with_fields(_SLOWDOWN, lambda _seconds, _value: (1 << 64) - 2),
        Says(errors=frozenset({"throttle: implausible"})),
    )
    yield _fields(
        "the throttle counters fall every second",
        with_fields(_SLOWDOWN, lambda seconds, _value: max(0, 10_000 - seconds * 10)),
        ALL_WELL,
    )
    yield _fields(
        "the PCIe byte counters fall every second",
        with_fields(_PCIE_BYTES, lambda seconds, value: max(0, value - seconds * 10)),
        ALL_WELL,
    )
    yield _fields(
        "every field has a value type that no header lists",
        with_fields(None, lambda _seconds, value: value, value_type=99),
        Within(every_collector(), frozenset({"malformed"})),
    )
    for function, number, collector in (
        ("nvmlDeviceGetTotalEnergyConsumption", (1 << 64) - 2, "power"),
        ("nvmlDeviceGetPcieReplayCounter", (1 << 32) - 2, "pcie"),
        ("nvmlDeviceGetTotalEccErrors", (1 << 64) - 2, "ecc"),
    ):
        yield Row(
            group=ABSURD,
            fault=f"`{function}` answers {number}",
            moment="while it runs, GPU 0",
            says=Says(errors=frozenset({f"{collector}: implausible"})),
            begin=counting(function, number),
            config=EVERY_SECOND,
            lasts=3,
            recovers_within=3,
        )
    for seed in range(_SEEDS):
        yield Row(
            group=GARBAGE,
            fault=f"random bits in every value (seed {seed})",
            moment="while it runs, GPU 0",
            says=Within(every_collector(), frozenset({"implausible", "malformed"})),
            begin=garbled(seed),
            config=EVERY_SECOND,
            recovers_within=3,
            inflates=True,
        )


def _fields(fault: str, begin: Begin, says: Says | Within, leaves: frozenset[str] = frozenset()) -> Row:
    return Row(
        group=FIELDS,
        fault=fault,
        moment="while it runs, GPU 0",
        says=says,
        begin=begin,
        recovers_within=3,
        inflates=True,
        leaves=leaves,
    )
