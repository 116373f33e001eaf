"""Rows of answers that cannot be true."""

from collections.abc import Iterator
from functools import partial

from tests.faults.hosts import EVERY_SECOND
from tests.faults.injections import counting, garbled, with_fields
from tests.faults.library import every_collector
from tests.faults.row import Row, Says, Within, counts

FIELDS = "Field ids mean something else in this driver"
ABSURD = "A counter reads an absurd value for a moment"

_SLOWDOWN = frozenset({269, 270, 271})
_NANOSECONDS = 10**9


def rows() -> Iterator[Row]:
    row = partial(Row, moment="while it runs, GPU 0", recovers_within=3)
    fields, implausible = partial(row, FIELDS, inflates=True), counts("throttle: implausible")
    begin = with_fields(_SLOWDOWN, lambda seconds, _value: seconds * 10 * _NANOSECONDS)
    leaves = frozenset({"gpu_throttle_counter_rejected_info"})
    yield fields("the throttle counters run ten times as fast as time", says=implausible, begin=begin, leaves=leaves)
    begin = with_fields(_SLOWDOWN, lambda _seconds, _value: (1 << 64) - 2)
    yield fields("the throttle counters stand at a huge value", says=implausible, begin=begin)
    begin = with_fields(_SLOWDOWN, lambda seconds, _value: max(0, 10_000 - seconds * 10))
    yield fields("the throttle counters fall every second", begin=begin)
    begin = with_fields({197, 198}, lambda seconds, value: max(0, value - seconds * 10))
    yield fields("the PCIe byte counters fall every second", begin=begin)
    begin, malformed = with_fields(None, lambda _, value: value, value_type=99), frozenset({"malformed"})
    says: Says | Within = Within(every_collector(), malformed)
    yield fields("every field has a value type that no header lists", says=says, begin=begin)
    for function, number, collector in (
        ("nvmlDeviceGetTotalEnergyConsumption", (1 << 64) - 2, "power"),
        ("nvmlDeviceGetPcieReplayCounter", (1 << 32) - 2, "pcie"),
        ("nvmlDeviceGetTotalEccErrors", (1 << 64) - 2, "ecc"),
    ):
        says, begin = counts(f"{collector}: implausible"), counting(function, number)
        yield row(ABSURD, f"`{function}` answers {number}", says=says, begin=begin, config=EVERY_SECOND, lasts=3)
    says = Within(every_collector(), frozenset({"implausible", "malformed"}))
    garbage = partial(row, "Every answer is garbage", says=says, config=EVERY_SECOND, inflates=True)
    for seed in range(3):
        yield garbage(f"random bits in every value (seed {seed})", begin=garbled(seed))
