"""What an exporter makes of the file that `gpu-triage maintenance` writes."""

import json
import os
from pathlib import Path

import pytest
from click import unstyle
from tests.incident_hosts import HangingLane
from tests.rig import Rig, only, rig
from tests.status_pages import body_of, judged, read

from gpu_triage.judge.report.machine_readable import render_json, render_lines, report_from_json
from gpu_triage.judge.report.text import render_text
from gpu_triage.read.host.maintenance import (
    FILE,
    GPU_HOST_MAINTENANCE_UNTIL_TIMESTAMP_SECONDS,
    LONGEST_SECONDS,
    Maintenance,
    path_of,
)
from gpu_triage.sampler.lanes import InlineLane
from gpu_triage_simulator import load_scenario

METRIC = GPU_HOST_MAINTENANCE_UNTIL_TIMESTAMP_SECONDS.name
DAY = 86_400.0


def write(tmp_path: Path, running: Rig, seconds: float, reason: str = "riser", source: str = "command") -> None:
    planned = Maintenance(running.clock.now().wall + seconds, reason)
    path_of(source, tmp_path).write_bytes(FILE.encode(planned))


def test_a_maintenance_is_published_until_its_end_and_not_a_round_longer(tmp_path: Path) -> None:
    with rig(load_scenario("idle-downshift"), only("maintenance", state_directory=tmp_path)) as running:
        running.run(10)
        assert running.series(METRIC) == []
        write(tmp_path, running, 60)
        write(tmp_path, running, 30, "drained: fan", "slurm")
        running.run(10)
        assert {labels["source"] for labels, _ in running.series(METRIC)} == {"command", "slurm"}
        running.run(30)
        ((labels, until),) = running.series(METRIC)
        assert labels == {"source": "command", "reason": "riser"}
        assert until == running.clock.now().wall + 20
        running.run(30)
        assert running.series(METRIC) == []


@pytest.mark.parametrize(
    "content",
    [
        "{",
        "[]",
        '{"version": 2, "until": 1e9, "reason": "x"}',
        '{"version": 1}',
        '{"version": 1, "until": NaN, "reason": "x"}',
        '{"version": 1, "until": 1e9, "reason": "a\\nb"}',
        f'{{"version": 1, "until": 1e9, "reason": "{"x" * 101}"}}',
        '{"version": 1, "until": 9e9, "reason": "for years"}',
    ],
)
def test_a_file_of_no_use_is_a_failed_read_and_no_maintenance(tmp_path: Path, content: str) -> None:
    path_of("slurm", tmp_path).write_text(content)
    with rig(load_scenario("idle-downshift"), only("maintenance", state_directory=tmp_path)) as running:
        running.run(10)
        assert running.series(METRIC) == []
        assert running.value("gpu_exporter_collector_success", collector="maintenance") == 0
        assert any("maintenance: " in line for line in running.report.not_read)


def test_a_month_is_not_too_long_for_a_host_that_boots_without_its_time(tmp_path: Path) -> None:
    with rig(load_scenario("idle-downshift"), only("maintenance", state_directory=tmp_path)) as running:
        write(tmp_path, running, LONGEST_SECONDS + DAY / 2)
        running.run(10)
        assert running.value(METRIC) is not None


def test_a_maintenance_that_was_written_by_a_clock_years_ahead_is_over_once_the_clock_is_right(tmp_path: Path) -> None:
    with rig(load_scenario("idle-downshift"), only("maintenance", state_directory=tmp_path)) as running:
        write(tmp_path, running, 3 * 365 * DAY)
        os.utime(path_of("command", tmp_path), (running.clock.now().wall + 3 * 365 * DAY,) * 2)
        running.run(10)
        assert running.series(METRIC) == []
        assert running.value("gpu_exporter_collector_success", collector="maintenance") == 1


def test_it_stays_while_the_disk_hangs_and_the_first_judgment_waits_for_it(tmp_path: Path) -> None:
    with rig(load_scenario("idle-downshift"), only("maintenance", state_directory=tmp_path)) as running:
        hanging = HangingLane(running.clock, "maintenance")

        def on(disk: InlineLane) -> Rig:
            def make_lane(name: str) -> InlineLane:
                return disk if name == "maintenance" else InlineLane(running.clock, name)

            return Rig(running.simulated, running.clock, running.config, make_lane=make_lane)

        write(tmp_path, running, 120)
        disk = InlineLane(running.clock, "maintenance")
        reads = on(disk)
        reads.run(10)
        disk.submit(hanging._hang)
        reads.run(60)
        assert reads.value("gpu_exporter_collector_success", collector="maintenance") == 0
        assert len(reads.series(METRIC)) == 1
        starts = on(hanging)
        starts.run(0)
        assert starts.sampler.waiting_for() == "the first reading of the host"
        starts.run(10)
        assert starts.sampler.waiting_for() != "the first reading of the host"


def test_a_report_shows_the_maintenance_that_ends_last_in_every_form() -> None:
    spec = GPU_HOST_MAINTENANCE_UNTIL_TIMESTAMP_SECONDS
    latest = judged(*read(), (spec, 1_800_003_600.0, ("slurm", "drained")), (spec, 1_800_007_200.0, ("command", "<b>")))
    report = latest.report
    line = "in maintenance until 2027-01-15 10:00 UTC: <b>; no pages, no drains"
    assert line in unstyle(render_text(report)).splitlines()
    assert "maintenance\t1800007200\tcommand\t<b>" in render_lines(report).splitlines()
    assert json.loads(render_json(report))["maintenance"] == {
        "until": 1_800_007_200.0,
        "source": "command",
        "reason": "<b>",
    }
    assert report_from_json(render_json(report)).maintenance == report.maintenance
    assert "2027-01-15 10:00 UTC: &lt;b&gt;" in body_of(latest)
    over = judged(*read(), (spec, 1_799_999_999.0, ("command", "x")))
    assert (over.report.maintenance, "In maintenance" in body_of(over)) == (None, False)
