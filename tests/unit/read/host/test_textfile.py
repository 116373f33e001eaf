from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from tests.logged import Log
from tests.rig import only, rig

from gpu_triage.log import MOST_LINES
from gpu_triage.machine import RealClock, real_machine
from gpu_triage.read.host.textfile_reader import (
    MAX_BYTES,
    MAX_FILES,
    MAX_LABELS,
    MAX_NAME_BYTES,
    MAX_SERIES,
    Error,
    TextFilesReader,
    TextFilesReading,
)
from gpu_triage.read.metrics.rounds import HostRound
from gpu_triage_simulator import load_scenario

pytestmark = pytest.mark.slow

GOOD = b"""# HELP gpu_job_steps_total Optimiser steps.
# TYPE gpu_job_steps_total counter
gpu_job_steps_total{job_name="bert"} 1200
# TYPE gpu_job_step_seconds histogram
gpu_job_step_seconds_bucket{job_name="bert",le="0.5"} 7
gpu_job_step_seconds_bucket{job_name="bert",le="+Inf"} 9
gpu_job_step_seconds_sum{job_name="bert"} 3.5
gpu_job_step_seconds_count{job_name="bert"} 9
"""


def read(directory: Path, reader: TextFilesReader | None = None) -> TextFilesReading:
    machine = real_machine(Path("/sys"), Path("/proc"), None)
    return (reader or TextFilesReader(directory)).read(HostRound(machine, RealClock().now()))


def errors(reading: TextFilesReading) -> dict[str, str | None]:
    return {file.name: file.error or None for file in reading.files}


def test_step_time_stands_beside_the_hardware(tmp_path: Path) -> None:
    (tmp_path / "bert.prom").write_bytes(GOOD)
    with rig(load_scenario("dual-a10"), only("textfile", collector_textfile_directory=tmp_path)) as running:
        running.run(6)
        assert running.value("gpu_job_steps_total", job_name="bert") == 1200
        assert running.value("gpu_job_step_seconds_bucket", le="0.5") == 7
        modified_at = (tmp_path / "bert.prom").stat().st_mtime
        assert running.value("gpu_exporter_textfile_mtime_seconds", file="bert.prom") == pytest.approx(modified_at)
        assert running.value("gpu_exporter_collector_success", collector="textfile") == 1
        openmetrics = running.exposition.page("application/openmetrics-text", (), gzipped=False).body.decode()
        owner = running.series("gpu_job_steps_total")[0][0]["owner"]
        assert f'gpu_job_steps_total{{job_name="bert",owner="{owner}"}} 1200.0' in openmetrics


def test_a_missing_directory_is_a_failed_collector_and_recovers(tmp_path: Path) -> None:
    folder = tmp_path / "later"
    with rig(load_scenario("dual-a10"), only("textfile", collector_textfile_directory=folder)) as running:
        running.run(6)
        assert running.value("gpu_exporter_collector_success", collector="textfile") == 0
        assert running.value("gpu_exporter_errors_total", collector="textfile", error="missing") is not None
        folder.mkdir()
        (folder / "bert.prom").write_bytes(GOOD)
        running.run(6)
        assert running.value("gpu_exporter_collector_success", collector="textfile") == 1
        assert running.value("gpu_job_steps_total") == 1200


def test_a_file_replaced_is_read_anew_and_one_removed_is_gone(tmp_path: Path) -> None:
    reader = TextFilesReader(tmp_path)
    (tmp_path / "a.prom").write_bytes(b"gpu_job_x 1\n")
    assert [s.value for f in read(tmp_path, reader).families for s in f.samples] == [1.0]
    (tmp_path / "a.tmp").write_bytes(b"gpu_job_x 2\n")
    (tmp_path / "a.tmp").replace(tmp_path / "a.prom")
    assert [s.value for f in read(tmp_path, reader).families for s in f.samples] == [2.0]
    (tmp_path / "a.prom").unlink()
    assert read(tmp_path, reader) == TextFilesReading((), ())


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"gpu_up 1\n", "name_not_allowed"),
        (b"\xff\xfe\x00", "malformed"),
        (b"#\n" * (MAX_BYTES // 2 + 1), "too_large"),
        (b"".join(b'gpu_job_x{n="%d"} 1\n' % n for n in range(MAX_SERIES + 1)), "too_many_series"),
    ],
)
def test_a_bad_file_costs_itself_and_is_named(tmp_path: Path, content: bytes, error: str) -> None:
    (tmp_path / "bad.prom").write_bytes(content)
    (tmp_path / "good.prom").write_bytes(GOOD)
    with rig(load_scenario("dual-a10"), only("textfile", collector_textfile_directory=tmp_path)) as running:
        running.run(6)
        assert running.value("gpu_exporter_textfile_error_info", file="bad.prom", error=error) == 1
        assert running.value("gpu_job_steps_total") == 1200
        assert [value for _, value in running.series("gpu_up")] == [1.0, 1.0]
        assert running.value("gpu_exporter_errors_total", collector="textfile", error=error) is not None


def test_pipes_and_folders_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.prom")
    (tmp_path / "folder.prom").mkdir()
    (tmp_path / ".hidden.prom").write_bytes(GOOD)
    reading = read(tmp_path)
    assert reading.families == ()
    assert errors(reading) == {"folder.prom": "not_a_file", "pipe.prom": "not_a_file"}


def test_two_files_of_an_owner_share_a_family_but_not_a_series(tmp_path: Path) -> None:
    (tmp_path / "a.prom").write_bytes(b'# TYPE gpu_job_x gauge\ngpu_job_x{job_name="a"} 1\n')
    (tmp_path / "b.prom").write_bytes(b'# TYPE gpu_job_x gauge\ngpu_job_x{job_name="b"} 2\n')
    (tmp_path / "c.prom").write_bytes(b'# TYPE gpu_job_x gauge\ngpu_job_x{job_name="a"} 3\n')
    reading = read(tmp_path)
    assert errors(reading) == {"a.prom": None, "b.prom": None, "c.prom": "duplicate_series"}
    (family,) = reading.families
    assert [sample.value for sample in family.samples] == [1.0, 2.0]


def test_more_files_than_are_read_are_counted(tmp_path: Path) -> None:
    for number in range(MAX_FILES + 1):
        (tmp_path / f"{number:03}.prom").write_bytes(b'gpu_job_x{n="%d"} 1\n' % number)
    machine = real_machine(Path("/sys"), Path("/proc"), None)
    host = HostRound(machine, RealClock().now())
    assert len(TextFilesReader(tmp_path).read(host).files) == MAX_FILES
    assert host.failures == ["too_many_files"]


HALF = MAX_SERIES // 2


def many_series(job: str, count: int = HALF, padding: str = "") -> bytes:
    return b"".join(f'gpu_job_x{{job_name="{job}",n="{n}{padding}"}} 1\n'.encode() for n in range(count))


def test_files_are_bounded_together_and_what_is_left_out_is_named_and_counted(tmp_path: Path) -> None:
    fitting = MAX_SERIES // HALF
    for number in range(MAX_FILES - 1):
        (tmp_path / f"{number:02}.prom").write_bytes(many_series(str(number)))
    with rig(load_scenario("dual-a10"), only("textfile", collector_textfile_directory=tmp_path)) as running:
        running.run(1)
        assert len(running.series("gpu_job_x")) == MAX_SERIES
        assert len(running.page()) < MAX_BYTES
        left_out = {labels["file"] for labels, _ in running.series("gpu_exporter_textfile_error_info")}
        assert left_out == {f"{number:02}.prom" for number in range(fitting, MAX_FILES - 1)}
        counted = running.series("gpu_exporter_errors_total", collector="textfile")
        assert sum(value for _, value in counted) == len(left_out)
        (tmp_path / "00.prom").unlink()
        running.run(6)
        assert running.series("gpu_job_x", job_name=str(fitting))
        assert len(running.series("gpu_job_x")) == MAX_SERIES


def test_a_small_file_is_republished_after_one_that_is_left_out(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.prom").write_bytes(many_series(name, HALF - 1))
    (tmp_path / "c.prom").write_bytes(many_series("c", 3))
    (tmp_path / "d.prom").write_bytes(many_series("d", 2))
    expected = {"a.prom": None, "b.prom": None, "c.prom": "too_many_series", "d.prom": None}
    assert errors(read(tmp_path)) == expected


def test_bytes_are_bounded_together(tmp_path: Path) -> None:
    comment, fitting = b"#" + b" " * 1000 + b"\n", 2
    for number in range(fitting + 1):
        content = comment * (MAX_BYTES // fitting // len(comment) - 1) + b'gpu_job_x{n="%d"} 1\n' % number
        (tmp_path / f"{number}.prom").write_bytes(content)
    expected = {f"{number}.prom": None for number in range(fitting)}
    assert errors(read(tmp_path)) == {**expected, f"{fitting}.prom": "too_large"}


def test_files_that_cannot_be_used_take_of_the_room_too(tmp_path: Path) -> None:
    for number in range(5):
        (tmp_path / f"{number}.prom").write_bytes(many_series("same"))
    found = list(errors(read(tmp_path)).values())
    assert found == [None, "duplicate_series", *["too_many_series"] * 3]


def test_families_are_the_same_objects_until_a_file_changes(tmp_path: Path) -> None:
    reader = TextFilesReader(tmp_path)
    (tmp_path / "a.prom").write_bytes(b"gpu_job_x 1\n")
    first = read(tmp_path, reader).families
    assert read(tmp_path, reader).families is first
    (tmp_path / "b.prom").write_bytes(b"gpu_job_y 2\n")
    assert [family.name for family in read(tmp_path, reader).families] == ["gpu_job_x", "gpu_job_y"]


def test_why_a_file_is_rejected_is_logged_once_and_says_where_it_belongs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "node.prom").write_bytes(b"node_load1 1\n")
    (tmp_path / "other.prom").write_bytes(b"gpu_job_x{\n")
    reader = TextFilesReader(tmp_path)
    for _ in range(3):
        read(tmp_path, reader)
    logged = [record.__dict__["fields"] for record in caplog.records if record.msg == "job's file rejected"]
    assert [(facts["file"], facts["reason"]) for facts in logged] == [
        ("node.prom", "name_not_allowed"),
        ("other.prom", "malformed"),
    ]
    assert logged[0]["remedy"] == Error.NAME_NOT_ALLOWED.value
    assert "node_exporter's textfile collector" in Error.NAME_NOT_ALLOWED.value


def test_jobs_cannot_fill_the_log(tmp_path: Path) -> None:
    log, reader = Log(), TextFilesReader(tmp_path)
    for number in range(12):
        for file in range(MAX_FILES):
            (tmp_path / f"{number}-{file}.prom").write_bytes(b"up 0\n")
        read(tmp_path, reader)
        for path in tmp_path.iterdir():
            path.unlink()
    assert len(log.lines("job's file rejected")) == MOST_LINES
    assert sum(line.get("lines", 1) for line in log.lines()) == 12 * MAX_FILES


def test_every_error_and_limit_is_documented(repository: Path) -> None:
    page = (repository / "docs/textfile.md").read_text()
    rows = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `")]
    assert set(re.findall(r"`(\w+)`", "".join(rows))) == {"error", *map(str, Error)}
    for number in (MAX_LABELS, MAX_NAME_BYTES, MAX_FILES):
        assert re.search(rf"\b{number}\b", page)
    assert f"{MAX_BYTES >> 20} MiB and {MAX_SERIES:,} series" in page
