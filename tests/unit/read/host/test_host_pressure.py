import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.host_tree import HostTree

from gpu_triage.driver.kernel.procfs import parse_pressure
from gpu_triage.errors import HostReadFailed
from gpu_triage.read.host.pressure import HostPressureReader, HostPressureReading

FILES = {
    "proc/pressure/cpu": (
        "some avg10=0.00 avg60=0.00 avg300=0.04 total=3407564\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
    ),
    "proc/pressure/io": (
        "some avg10=1.53 avg60=0.87 avg300=1.73 total=1000000\n"
        "full avg10=1.53 avg60=0.87 avg300=1.73 total=18446744073709551615\n"
    ),
    "proc/pressure/memory": (
        "some avg10=0.00 avg60=0.00 avg300=0.00 total=5\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"
    ),
}


def test_stall_times_are_seconds_and_cpu_has_no_full(host: HostTree) -> None:
    host.write(FILES)
    assert HostPressureReader().read(host.round()) == HostPressureReading(
        cpu={"some": 3.407564}, io={"some": 1.0, "full": 18446744073709.551615}, memory={"some": 0.000005, "full": 0.0}
    )


def test_no_stall_time_goes_back(host: HostTree) -> None:
    reader = HostPressureReader()
    seconds = []
    for total in (9_000_000, 8_999_999, 10_000_000, 500_000, 750_000):
        host.write({"proc/pressure/io": f"some avg10=0.00 avg60=0.00 avg300=0.00 total={total}\n"})
        seconds.append((reader.read(host.round()).io or {})["some"])
    assert seconds == [9.0, 9.0, 10.0, 10.5, 10.75]


def test_one_unreadable_resource_costs_only_itself(host: HostTree) -> None:
    host.write(FILES | {"proc/pressure/cpu": "some avg10=0.00\n"})
    host.spoil("proc/pressure/io")
    round_ = host.round()
    reading = HostPressureReader().read(round_)
    assert (reading.cpu, reading.io, reading.memory) == (None, None, {"some": 0.000005, "full": 0.0})
    assert round_.failures == ["malformed", "io_error"]


def test_no_readable_resource_is_a_failure(host: HostTree) -> None:
    host.spoil("proc/pressure/io")
    with pytest.raises(HostReadFailed, match="io_error"):
        HostPressureReader().read(host.round())


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**64 - 1))
def test_totals_round_trip(some: int, full: int) -> None:
    text = f"some avg10=0.00 avg60=0.00 avg300=0.00 total={some}\nfull avg10=0.00 total={full}\n"
    assert parse_pressure(text) == {"some": some / 1_000_000, "full": full / 1_000_000}
