"""The ledger in a running exporter: what it notes and remembers, and its file damaged, locked, or on a hanging disk."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from tests.gathered import every
from tests.incident_hosts import (
    COARSE,
    FILE,
    errors,
    event,
    fields_of,
    host,
    incidents,
    on_a_hanging_disk,
    resets,
    restarted,
    saved,
    stop,
    watching,
    xid,
)
from tests.parts import some
from tests.rig import Rig, rig

from gpu_triage_simulator import load_scenario

pytestmark = pytest.mark.slow

WATCHING = watching()
HOUR = 3600


def kinds(folder: Path) -> list[str]:
    """Of the incidents on disk."""
    return [each["kind"] for each in saved(folder)["incidents"]]


def success(running: Rig) -> float | None:
    return running.value("gpu_exporter_collector_success", collector="incidents")


def test_pages_tickets_losses_and_memory_errors_are_noted_and_programs_are_not(tmp_path: Path) -> None:
    events = (
        xid(20, 48),
        xid(20, 31, more=", times = 50"),
        xid(20, 106),
        xid(20, 63),
        xid(20, 149, more=", fatal = false"),
        event(30, 'kind = "lost"', gpu=1),
        event(40, 'kind = "ecc", uncorrected = 2'),
    )
    with rig(host(tmp_path, *events), WATCHING) as running:
        running.run_to(90)
        expected = {("0", "48"): 1, ("0", "63"): 1, ("1", "79"): 1, ("1", "lost"): 1, ("0", "uncorrected"): 1}
        assert incidents(running) == incidents(running, by="slot") == incidents(running, days="30") == expected
        ((board, value),) = running.series("gpu_incident_boards_recent", gpu="1", kind="79")
        assert (board["pci_bus_id"], board["days"], value) == ("0000:b3:00.0", "30", 1.0)


def test_a_restart_forgets_nothing_and_counts_nothing_twice(tmp_path: Path) -> None:
    events = (xid(20, 48), xid(25, 94, gpu=1), event(30, 'kind = "lost"', gpu=1))
    with rig(host(tmp_path, *events), watching(state_directory=tmp_path)) as running:
        running.run_to(100)
        before = incidents(running)
        again = restarted(running)
        again.run(120)
        assert incidents(again)[("0", "48")] == 1
        third = restarted(again)
        third.run(10)
        assert saved(tmp_path)["version"] == 1, "with another number an upgrade sets the history aside"
        assert kinds(tmp_path) == ["48", "94", "79", "lost"]
        assert [each["slot"][5:7] for each in saved(tmp_path)["incidents"]] == ["65", "b3", "b3", "b3"]
        assert before == {("0", "48"): 1, ("1", "94"): 1, ("1", "79"): 1, ("1", "lost"): 1}


def test_the_most_gpus_of_this_boot_are_remembered_over_a_restart(tmp_path: Path) -> None:
    removed = event(100, 'kind = "removed"', gpu=1)
    with rig(host(tmp_path, removed), replace(COARSE, state_directory=tmp_path)) as running:
        running.run_to(60)
        assert running.value("gpu_devices", source="boot") == 2
        running.run_to(600)
        again = restarted(running)
        again.run(60)
        assert again.value("gpu_devices", source="nvml") == 1
        assert again.value("gpu_devices", source="boot") == 2
        forgetful = restarted(again, replace(again.config, state_directory=None))
        forgetful.run(60)
        assert forgetful.value("gpu_devices", source="boot") == 1


@pytest.mark.parametrize(("kernel_log", "loaded_after"), [(True, 4.0), (False, 0.0)])
def test_loading_the_driver_resets_every_gpu_or_without_the_kernel_log_the_boot_did(
    tmp_path: Path,
    kernel_log: bool,  # noqa: FBT001
    loaded_after: float,
) -> None:
    away = 'at = 40\nuntil = 80\neffect = { kind = "driver_not_loaded" }'
    with rig(host(tmp_path, away), WATCHING) as running:
        if not kernel_log:
            running.kmsg.unlink()
        running.run_to(30)
        booted = -(running.clock.now().monotonic - running.elapsed)
        assert resets(running) == dict.fromkeys("01", pytest.approx(booted + loaded_after))
        running.run_to(150)
        assert all(80 <= at <= 145 for at in every(resets(running).values()))
        assert incidents(running) == {("0", "reset"): 1, ("1", "reset"): 1}


def test_releasing_and_acquiring_is_a_reset_remembered_by_the_monotonic_clock(tmp_path: Path) -> None:
    with rig(host(tmp_path), watching(state_directory=tmp_path)) as running:
        running.run_to(30)
        running.sampler.driver.release()
        running.run_to(60)
        running.sampler.driver.acquire()
        running.run_to(120)
        assert all(60 <= at <= 70 for at in every(resets(running).values()))
        stop(running)
        document = saved(tmp_path)
        # Noted while the clock was 20 hours ahead.
        for each in document["incidents"]:
            each["last_at"] = each["first_at"] = each["last_at"] + 20 * HOUR
        (tmp_path / FILE).write_text(json.dumps(document))
        again = Rig(running.simulated, running.clock, running.config)
        again.elapsed = running.elapsed
        again.run(10)
        assert all(60 <= at <= 70 for at in every(resets(again).values()))


def test_neither_a_new_nvml_session_nor_a_restart_is_a_reset(tmp_path: Path) -> None:
    lost = event(20, 'kind = "lost"', gpu=1, until=40)
    with rig(host(tmp_path, lost), WATCHING) as running:
        running.run_to(10)
        before = resets(running)
        running.run_to(200)
        assert running.value("gpu_up", gpu="1") == 1
        assert resets(running) == pytest.approx(before)
        again = restarted(running)
        again.run(30)
        assert resets(again) == pytest.approx(before)


def test_a_reset_that_the_driver_asks_for_no_more_was_done(tmp_path: Path) -> None:
    asked = event(20, 'kind = "recovery_action", action = 1', until=100)
    drain = event(20, 'kind = "recovery_action", action = 3', gpu=1, until=100)
    with rig(host(tmp_path, asked, drain), WATCHING) as running:
        running.run_to(200)
        seen = resets(running)
        assert 100 <= seen["0"] <= 110
        assert seen["1"] < 0, "peer-to-peer work that was drained resets nothing"


def test_the_scenario_of_a_repeat_offender_blames_the_slot_which_is_remembered_by_its_address(tmp_path: Path) -> None:
    with rig(load_scenario("repeat-offender"), watching(sample_fast_seconds=5.0, state_directory=tmp_path)) as running:
        running.run_to(60)
        assert incidents(running, by="slot", days="30") == {("1", "79"): 2}
        running.run_to(700)
        assert incidents(running, by="slot", days="30") == {("1", "79"): 3, ("1", "lost"): 1}
        assert incidents(running, by="board", days="30") == {("1", "79"): 1, ("1", "lost"): 1}
        assert running.value("gpu_incident_boards_recent", gpu="1", kind="79") == 2
        found = {(labels["code"], labels["gpu"]) for labels, _ in running.series("gpu_finding_since_timestamp_seconds")}
        assert ("gpu.repeat_offender", "1") in found
        # The next one never sees the GPU, and knows from the state directory which it is.
        again = restarted(running)
        again.run(30)
        for by, count in (("slot", 3.0), ("board", 1.0)):
            ((labels, value),) = again.series("gpu_incidents_recent", by=by, days="30", kind="79")
            assert (labels["gpu"], labels["pci_bus_id"], value) == ("1", "0000:b3:00.0", count)


CONTENTS = [b"", b'{"version": 2}', b"\x00" * 100, b"[" * 5000, b"x" * (2 << 20)]


@pytest.mark.parametrize("content", some(CONTENTS, usual=[b'{"version": 2}', b"[" * 5000]))
def test_a_corrupt_file_is_set_aside_once(tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / FILE).write_bytes(content)
    with rig(host(tmp_path, xid(20, 48)), watching(state_directory=tmp_path)) as running:
        running.run_to(200)
        assert incidents(running) == {("0", "48"): 1}
        assert sum(errors(running).values()) == 1
        assert (tmp_path / f"{FILE}.corrupt").read_bytes() == content
        assert kinds(tmp_path) == ["48"]
        told = [record for record in caplog.records if "incident history" in record.message]
        assert [record.message for record in told] == ["not all of the incident history is usable"]
        assert f"it is now {tmp_path / FILE}.corrupt, and a new one is started" in fields_of(told[0])["cause"]
        assert success(running) == 1


def test_an_unwritable_state_directory_costs_only_memory(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "state"
    with rig(host(tmp_path, xid(20, 48)), watching(state_directory=folder)) as running:
        running.run_to(90)
        assert incidents(running) == {("0", "48"): 1}
        assert errors(running)["missing"] >= 1
        assert success(running) == 0
        assert sum("incidents are remembered in memory only" in record.message for record in caplog.records) == 1
        degraded = [labels["feature"] for labels, _ in running.series("gpu_exporter_degraded_info", reason="missing")]
        assert degraded == ["state_directory"]
        assert [value for _, value in running.series("gpu_up")] == [1.0, 1.0]
        folder.mkdir()
        running.run_to(300)
        assert success(running) == 1
        assert kinds(folder) == ["48"]


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
        assert kinds(tmp_path) == ["48"]


def test_what_was_noted_in_the_last_moment_is_written_at_the_end(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with rig(host(tmp_path, xid(20, 48), xid(22, 95, gpu=1)), watching(state_directory=tmp_path)) as running:
        running.run_to(22)
        assert kinds(tmp_path) == ["48"]
        stop(running)
        assert kinds(tmp_path) == ["48", "95"]
        assert not [record for record in caplog.records if "not written before the end" in record.message]


def test_a_hanging_state_directory_stops_nothing(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with rig(host(tmp_path, xid(20, 48)), watching(state_directory=tmp_path)) as running:
        hanging = on_a_hanging_disk(running)
        hanging.run_to(90)
        assert incidents(hanging) == {("0", "48"): 1}
        assert hanging.value("gpu_devices", source="boot") == 2
        assert success(hanging) == 0
        assert [value for _, value in hanging.series("gpu_up")] == [1.0, 1.0]
        closed: list[bool] = []

        def wait(condition: Callable[[], bool]) -> bool:
            closed.append(condition())
            return closed[-1]

        hanging.sampler.close(wait)
        assert all(closed), "a state directory that hangs must not keep NVML from being shut down"
        hanging.sampler.save(lambda condition: condition())
        (lost,) = [fields_of(each) for each in caplog.records if "incident history was not" in each.message]
        named = {"file": str(tmp_path / FILE), "lost": 1, "last": "48 at 0000:65:00.0"}
        assert lost == {**named, "cause": "the disk did not answer in time"}
