"""The file of incidents under a running exporter: damaged, locked by another one, on a disk that hangs."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.incident_hosts import (
    FILE,
    HangingLane,
    errors,
    fields_of,
    host,
    incidents,
    resets,
    saved,
    stop,
    watching,
    xid,
)
from tests.rig import Rig, rig

from gpu_triage.sampler.lanes import InlineLane

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

pytestmark = pytest.mark.slow

WATCHING = watching()
HOUR = 3600


@pytest.mark.parametrize("content", [b"", b'{"version": 2}', b"\x00" * 100, b"[" * 5000, b"x" * (2 << 20)])
def test_a_corrupt_file_is_set_aside_once_and_counting_goes_on(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / FILE).write_bytes(content)
    with rig(host(tmp_path, xid(20, 48)), watching(state_directory=tmp_path)) as running:
        running.run_to(200)
        assert incidents(running) == {("0", "48"): 1}
        assert sum(errors(running).values()) == 1
        assert (tmp_path / f"{FILE}.corrupt").read_bytes() == content
        assert [each["kind"] for each in saved(tmp_path)["incidents"]] == ["48"]
        told = [record for record in caplog.records if "incident history" in record.message]
        assert [record.message for record in told] == ["not all of the incident history is usable"]
        assert f"it is now {tmp_path / FILE}.corrupt, and a new one is started" in fields_of(told[0])["cause"]
        assert running.value("gpu_exporter_collector_success", collector="incidents") == 1


def test_a_state_directory_that_cannot_be_written_costs_only_the_memory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "state"
    with rig(host(tmp_path, xid(20, 48)), watching(state_directory=folder)) as running:
        running.run_to(90)
        assert incidents(running) == {("0", "48"): 1}
        assert errors(running)["missing"] >= 1
        assert running.value("gpu_exporter_collector_success", collector="incidents") == 0
        assert sum("incidents are remembered in memory only" in record.message for record in caplog.records) == 1
        degraded = [labels["feature"] for labels, _ in running.series("gpu_exporter_degraded_info", reason="missing")]
        assert degraded == ["state_directory"]
        assert [value for _, value in running.series("gpu_up")] == [1.0, 1.0]
        folder.mkdir()
        running.run_to(300)
        assert running.value("gpu_exporter_collector_success", collector="incidents") == 1
        assert [each["kind"] for each in saved(folder)["incidents"]] == ["48"]


def test_of_two_exporters_with_one_state_directory_the_second_says_so_and_writes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with rig(host(tmp_path, xid(20, 48), xid(60, 95, gpu=1)), watching(state_directory=tmp_path)) as first:
        first.run_to(30)
        written = (tmp_path / FILE).read_bytes()
        second = Rig(first.simulated, first.clock, first.config)
        second.run(60)
        assert (tmp_path / FILE).read_bytes() == written
        assert incidents(second) == {("0", "48"): 1, ("1", "95"): 1}, "what the first wrote, and what it saw itself"
        assert second.value("gpu_exporter_state_directory_in_use") == 1
        assert second.value("gpu_exporter_collector_success", collector="incidents") == 0
        assert errors(second)["in_use"] >= 1
        (told,) = [record for record in caplog.records if "incidents are remembered in memory only" in record.message]
        assert (
            f"{tmp_path}: another exporter writes here (its lock file names process {os.getpid()} on "
            in fields_of(told)["cause"]
        )
        latest = second.judge.latest
        assert latest is not None
        assert [line for line in latest.report.not_read if "another exporter writes there" in line] != []
        assert [line for line in latest.report.not_read if "in_use" in line] == []
        first.run(1)
        assert first.value("gpu_exporter_state_directory_in_use") == 0


def test_the_second_exporter_takes_over_when_the_first_ends_and_keeps_what_both_saw(tmp_path: Path) -> None:
    with rig(host(tmp_path, xid(20, 48), xid(150, 95, gpu=1)), watching(state_directory=tmp_path)) as first:
        first.run_to(30)
        second = Rig(first.simulated, first.clock, first.config)
        second.run(10)
        document = saved(tmp_path)
        # Only the first saw this one.
        document["incidents"].append(document["incidents"][0] | {"kind": "62", "uptime_seconds": 7.0})
        first.clock.advance(120)
        second.run(5)
        stop(first)
        (tmp_path / FILE).write_text(json.dumps(document))
        second.run(20)
        assert second.value("gpu_exporter_state_directory_in_use") == 0
        assert second.value("gpu_exporter_collector_success", collector="incidents") == 1
        assert [each["kind"] for each in saved(tmp_path)["incidents"]] == ["48", "62", "95"]
        latest = second.judge.latest
        assert latest is not None
        assert [line for line in latest.report.not_read if "state directory" in line or "in_use" in line] == []


def test_a_state_directory_that_is_replaced_is_locked_and_filled_again(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    with rig(host(tmp_path, xid(20, 48)), watching(state_directory=folder)) as running:
        running.run_to(40)
        folder.rename(tmp_path / "moved")
        folder.mkdir()
        running.run_to(200)
        assert [each["kind"] for each in saved(folder)["incidents"]] == ["48"]
        assert running.value("gpu_exporter_collector_success", collector="incidents") == 1
        other = Rig(running.simulated, running.clock, running.config)
        other.run(5)
        assert other.value("gpu_exporter_state_directory_in_use") == 1


DAY = 86_400
FAR = (1e11, 4e9)


@pytest.mark.parametrize("at", FAR)
def test_an_incident_of_the_far_future_is_refused_by_name_and_costs_no_other(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, at: float
) -> None:
    with rig(host(tmp_path, xid(20, 48)), watching(state_directory=tmp_path)) as running:
        running.run_to(40)
        stop(running)
        document = saved(tmp_path)
        document["incidents"].append(document["incidents"][0] | {"kind": "62", "last_at": at, "uptime_seconds": 1.0})
        spoiled = json.dumps(document)
        (tmp_path / FILE).write_text(spoiled)
        again = Rig(running.simulated, running.clock, running.config)
        again.run(100)
        assert incidents(again) == {("0", "48"): 1}
        assert [each["kind"] for each in saved(tmp_path)["incidents"]] == ["48"]
        assert (tmp_path / f"{FILE}.corrupt").read_text() == spoiled
        assert errors(again) == {"malformed": 1}
        (told,) = [record for record in caplog.records if "incident history" in record.message]
        cause = fields_of(told)["cause"]
        assert f"{tmp_path / FILE}: incidents[1].last_at: is " in cause
        assert "more than 24 hours in the future; the other entries are used" in cause
        assert f"{tmp_path / FILE}.corrupt has all of them" in cause


def test_what_cannot_be_copied_is_not_written_over(tmp_path: Path) -> None:
    with rig(host(tmp_path, xid(20, 48)), watching(state_directory=tmp_path)) as running:
        running.run_to(40)
        stop(running)
        document = saved(tmp_path)
        document["incidents"].append(document["incidents"][0] | {"last_at": 1e11})
        spoiled = json.dumps(document)
        (tmp_path / FILE).write_text(spoiled)
        (tmp_path / f".{FILE}.corrupt.new").mkdir()
        again = Rig(running.simulated, running.clock, running.config)
        again.run(100)
        assert incidents(again) == {("0", "48"): 1}
        assert (tmp_path / FILE).read_text() == spoiled
        (tmp_path / f".{FILE}.corrupt.new").rmdir()
        again.run(100)
        assert (tmp_path / f"{FILE}.corrupt").read_text() == spoiled
        assert [each["kind"] for each in saved(tmp_path)["incidents"]] == ["48"]


def test_a_remembered_reset_is_dated_by_the_monotonic_clock_whatever_the_clock_says_now(tmp_path: Path) -> None:
    with rig(host(tmp_path), watching(state_directory=tmp_path)) as running:
        running.run_to(30)
        running.sampler.release()
        running.run_to(60)
        running.sampler.acquire()
        running.run_to(120)
        stop(running)
        document = saved(tmp_path)
        # Noted while the clock was 20 hours ahead.
        for each in document["incidents"]:
            each["last_at"] = each["first_at"] = each["last_at"] + 20 * HOUR
        (tmp_path / FILE).write_text(json.dumps(document))
        again = Rig(running.simulated, running.clock, running.config)
        again.elapsed = running.elapsed
        again.run(10)
        assert all(60 <= at <= 70 for at in resets(again).values())


IN_TWO_DAYS = "in two days"
NOT_NUMBERS: tuple[Any, ...] = (float("nan"), float("inf"), None, "", "x" * 99, True, [], {})
ODD = st.sampled_from((*FAR, *NOT_NUMBERS, IN_TWO_DAYS, -1, 0, 1e200, 2**70))
DAMAGE = st.tuples(st.sampled_from(("boards", "incidents")), st.integers(0, 3), st.integers(0, 7), ODD)
HEAD = st.dictionaries(st.sampled_from(("boot", "most_gpus")), ODD)


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(damages=st.lists(DAMAGE, min_size=1, max_size=6), head=HEAD)
def test_from_any_damaged_file_the_exporter_starts_and_tells_no_time_of_the_future(
    damaged_host: tuple[Rig, Path], damages: list[tuple[str, int, int, Any]], head: dict[str, Any]
) -> None:
    running, folder = damaged_host
    document = json.loads((folder / "whole.json").read_text())
    now = running.clock.now().wall
    for part, number, field, value in damages:
        row = document[part][number % len(document[part])]
        row[sorted(row)[field % len(row)]] = now + 2 * DAY if value == IN_TWO_DAYS else value
    (folder / FILE).write_text(json.dumps(document | head))
    os.utime(folder / FILE, (now, now))
    again = Rig(running.simulated, running.clock, running.config)
    again.run(3)
    now = again.clock.now().wall
    assert [value for _, value in again.series("gpu_up")] == [1.0, 1.0]
    assert all(value <= now for _, value in again.series("gpu_reset_timestamp_seconds"))
    assert all(value <= 4 for _, value in again.series("gpu_incidents_recent"))
    stop(again)
    assert all(each["last_at"] <= now + DAY for each in saved(folder)["incidents"])
    damaged = {number % 2 for part, number, _, _ in damages if part == "incidents"}
    kept = {each["kind"] for each in saved(folder)["incidents"]}
    assert {kind for number, kind in enumerate(("48", "95")) if number not in damaged} <= kept


@pytest.fixture
def damaged_host(tmp_path: Path) -> Iterator[tuple[Rig, Path]]:
    """An exporter that was stopped, and the directory with what it remembered in ``whole.json``."""
    with rig(host(tmp_path, xid(20, 48), xid(25, 95, gpu=1)), watching(state_directory=tmp_path)) as running:
        running.run_to(40)
        stop(running)
        assert [each["kind"] for each in saved(tmp_path)["incidents"]] == ["48", "95"]
        (tmp_path / "whole.json").write_text((tmp_path / FILE).read_text())
        yield running, tmp_path


@pytest.mark.parametrize("disk", ["works", "is full"])
def test_what_is_written_at_the_end_is_not_called_lost_and_what_is_not_is_with_its_cause(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, disk: str
) -> None:
    with rig(host(tmp_path, xid(20, 48), xid(22, 95, gpu=1)), watching(state_directory=tmp_path)) as running:
        running.run_to(22)
        assert [each["kind"] for each in saved(tmp_path)["incidents"]] == ["48"]
        if disk == "is full":
            # Nothing can be created under this name.
            (tmp_path / f".{FILE}.new").mkdir()
        stop(running)
        told = [fields_of(record) for record in caplog.records if "not written before the end" in record.message]
        if disk == "works":
            assert [each["kind"] for each in saved(tmp_path)["incidents"]] == ["48", "95"]
            assert told == []
        else:
            assert [(each["lost"], each["last"]) for each in told] == [(1, "95 at 0000:b3:00.0")]
            assert f"{tmp_path / FILE}: cannot be written" in told[0]["cause"]


def test_a_state_directory_that_hangs_stops_nothing_and_what_is_lost_is_logged(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with rig(host(tmp_path, xid(20, 48)), watching(state_directory=tmp_path)) as running:
        clock = running.clock
        hanging = Rig(
            running.simulated,
            clock,
            running.config,
            make_lane=lambda name: (HangingLane if name == "incidents" else InlineLane)(clock),
        )
        hanging.run_to(90)
        assert incidents(hanging) == {("0", "48"): 1}
        assert hanging.value("gpu_devices", source="boot") == 2
        assert hanging.value("gpu_exporter_collector_success", collector="incidents") == 0
        assert [value for _, value in hanging.series("gpu_up")] == [1.0, 1.0]
        closed: list[bool] = []

        def wait(condition: Callable[[], bool]) -> bool:
            closed.append(condition())
            return closed[-1]

        hanging.sampler.close(wait)
        assert all(closed), "a state directory that hangs must not keep NVML from being shut down"
        hanging.sampler.save(lambda condition: condition())
        (lost,) = [record for record in caplog.records if "not written before the end" in record.message]
        assert fields_of(lost) == {
            "file": str(tmp_path / FILE),
            "lost": 1,
            "last": "48 at 0000:65:00.0",
            "cause": "the disk did not answer in time",
        }
