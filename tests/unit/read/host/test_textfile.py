"""Files of jobs: what is read of them, whose they are, and that the page stays within the limits of a scrape."""

import os
import pwd
import re
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.job_files import errors, read, samples, write
from tests.rig import only, rig
from tests.scrape_limits import TARGET_LABELS, check, page_of, scrape_of_the_chart

from gpu_triage.driver.kernel import job_folder
from gpu_triage.read.host.textfile import (
    MAX_BYTES,
    MAX_FILES,
    MAX_LABELS,
    MAX_NAME_BYTES,
    MAX_SERIES,
    PREFIX,
    Error,
    TextFilesReader,
    TextFilesReading,
)
from gpu_triage.serve.exposition.encoding import Format
from gpu_triage_simulator import load_scenario

pytestmark = pytest.mark.slow

HALF = MAX_SERIES // 2
STEPS = 'gpu_job_steps_total{job_name="bert"} %d\n'
GOOD = b"""# HELP gpu_job_steps_total Optimiser steps.
# TYPE gpu_job_steps_total counter
gpu_job_steps_total{job_name="bert"} 1200
# TYPE gpu_job_step_seconds histogram
gpu_job_step_seconds_bucket{job_name="bert",le="0.5"} 7
gpu_job_step_seconds_bucket{job_name="bert",le="+Inf"} 9
gpu_job_step_seconds_sum{job_name="bert"} 3.5
gpu_job_step_seconds_count{job_name="bert"} 9
"""


def many(count: int = HALF, job: str = "same") -> str:
    return "".join(f'gpu_job_x{{job_name="{job}",n="{number}"}} 1\n' for number in range(count))


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


def test_a_file_replaced_is_read_anew_and_one_removed_is_gone(tmp_path: Path) -> None:
    reader = TextFilesReader(tmp_path)
    for value in (1, 2):
        (tmp_path / "a.tmp").write_text(f"gpu_job_x {value}\n")
        (tmp_path / "a.tmp").replace(tmp_path / "a.prom")
        assert [sample.value for sample in samples(read(tmp_path, reader=reader))] == [value]
    (tmp_path / "a.prom").unlink()
    assert read(tmp_path, reader=reader) == TextFilesReading((), ())


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"\xff\xfe\x00", "malformed"),
        (b"#\n" * (MAX_BYTES // 2 + 1), "too_large"),
        (many(MAX_SERIES + 1).encode(), "too_many_series"),
    ],
)
def test_a_bad_file_costs_itself_and_is_named(tmp_path: Path, content: bytes, error: str) -> None:
    (tmp_path / "bad.prom").write_bytes(content)
    (tmp_path / "good.prom").write_bytes(GOOD)
    assert errors(read(tmp_path)) == {"bad.prom": error, "good.prom": ""}


def test_pipes_and_folders_are_not_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.prom")
    (tmp_path / "folder.prom").mkdir()
    (tmp_path / ".hidden.prom").write_bytes(GOOD)
    reading = read(tmp_path)
    assert reading.families == ()
    assert errors(reading) == {"folder.prom": "not_a_file", "pipe.prom": "not_a_file"}


def test_files_are_bounded_together_and_what_is_left_out_is_named_and_counted(tmp_path: Path) -> None:
    fitting = MAX_SERIES // HALF
    for number in range(MAX_FILES - 1):
        (tmp_path / f"{number:02}.prom").write_text(many(job=str(number)))
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


def test_bytes_are_bounded_together(tmp_path: Path) -> None:
    comment, fitting = b"#" + b" " * 1000 + b"\n", 2
    for number in range(fitting + 1):
        content = comment * (MAX_BYTES // fitting // len(comment) - 1) + b'gpu_job_x{n="%d"} 1\n' % number
        (tmp_path / f"{number}.prom").write_bytes(content)
    expected = {f"{number}.prom": "" for number in range(fitting)}
    assert errors(read(tmp_path)) == {**expected, f"{fitting}.prom": "too_large"}


def test_files_that_cannot_be_used_take_of_the_room_too(tmp_path: Path) -> None:
    write(tmp_path, {f"{number}.prom": many() for number in range(5)})
    found = list(errors(read(tmp_path)).values())
    assert found == ["", "duplicate_series", *["too_many_series"] * 3]


def test_why_a_file_is_rejected_is_logged_once_with_a_remedy(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "node.prom").write_bytes(b"node_load1 1\n")
    (tmp_path / "other.prom").write_bytes(b"gpu_job_x{\n")
    reader = TextFilesReader(tmp_path)
    for _ in range(3):
        read(tmp_path, reader=reader)
    logged = [record.__dict__["fields"] for record in caplog.records if record.msg == "job's file rejected"]
    told = [(facts["file"], facts["reason"]) for facts in logged]
    assert told == [("node.prom", "name_not_allowed"), ("other.prom", "malformed")]
    assert logged[0]["remedy"] == Error.NAME_NOT_ALLOWED.value
    assert "node_exporter's textfile collector" in Error.NAME_NOT_ALLOWED.value


def test_every_error_and_limit_is_documented(repository: Path) -> None:
    page = (repository / "docs/textfile.md").read_text()
    named = re.findall(r"^- ((?:`\w+`(?:, )?)+): ", page, re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", "".join(named))) >= set(map(str, Error))
    for number in (MAX_LABELS, MAX_NAME_BYTES, MAX_FILES):
        assert re.search(rf"\b{number}\b", page)
    assert f"{MAX_BYTES >> 20} MiB and {MAX_SERIES:,} series" in page


ROOT_ONLY = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file to another user")


def owners(directory: Path) -> dict[str, str]:
    return {file.name: file.owner for file in read(directory).files}


@ROOT_ONLY
def test_in_a_directory_that_others_can_write_to_the_owner_is_the_user(tmp_path: Path) -> None:
    write(tmp_path, {"own.prom": "gpu_job_x 1\n", "alice/claimed.prom": "gpu_job_x 1\n", "4242/job.prom": STEPS % 1})
    tmp_path.chmod(0o1777)
    os.chown(tmp_path / "own.prom", 4711, -1)
    os.chown(tmp_path / "alice", 4712, -1)
    assert owners(tmp_path) == {"4242/job.prom": "4242", "alice/claimed.prom": "uid:4712", "own.prom": "uid:4711"}


@ROOT_ONLY
def test_a_folder_that_a_prolog_gave_to_the_jobs_user_stays_the_jobs(tmp_path: Path) -> None:
    write(tmp_path, {"4242/job.prom": STEPS % 1})
    os.chown(tmp_path / "4242", 4711, -1)
    os.chown(tmp_path / "4242/job.prom", 4711, -1)
    assert owners(tmp_path) == {"4242/job.prom": "4242"}


def test_a_file_in_the_directory_itself_belongs_to_its_user(tmp_path: Path) -> None:
    write(tmp_path, {"own.prom": "gpu_job_x 1\n"})
    names = [entry.pw_name for entry in pwd.getpwall() if entry.pw_uid == os.geteuid()]
    assert owners(tmp_path)["own.prom"] in (names or [f"uid:{os.geteuid()}"])


@ROOT_ONLY
def test_whoever_links_to_a_file_of_another_owns_what_is_published_of_it(tmp_path: Path) -> None:
    write(tmp_path, {"victim.prom": STEPS % 1})
    tmp_path.chmod(0o1777)
    (tmp_path / "000.prom").symlink_to("victim.prom")
    os.lchown(tmp_path / "000.prom", 4711, -1)
    reading = read(tmp_path)
    assert errors(reading) == {"000.prom": "", "victim.prom": ""}
    assert len({sample.labels["owner"] for sample in samples(reading)}) == 2


def test_a_directory_behind_a_link_is_judged_by_itself(tmp_path: Path) -> None:
    write(tmp_path / "jobs", {"4242/job.prom": STEPS % 1})
    (tmp_path / "link").symlink_to("jobs")
    assert owners(tmp_path / "link") == {"4242/job.prom": "4242"}


def test_a_folder_that_cannot_be_read_is_told() -> None:
    with tempfile.TemporaryDirectory() as name:  # pytest's own is closed to other users
        directory = Path(name)
        write(directory, {"closed/job.prom": STEPS % 1})
        (directory / "closed").chmod(0)
        (directory / "lost+found").mkdir(mode=0)
        failures: list[str] = []
        user = os.geteuid()
        try:
            if user == 0:
                os.seteuid(65534)  # root may read everything
            reading = read(directory, failures=failures)
        finally:
            os.seteuid(user)
            (directory / "closed").chmod(0o700)
        assert errors(reading) == {"closed/": "unreadable"}
        assert failures == ["unreadable"]


def test_a_link_in_the_folder_of_one_job_reaches_no_file_of_another(tmp_path: Path) -> None:
    write(tmp_path, {"victim/.hidden": STEPS % 1, "mallory/own.prom": "gpu_job_x 1\n"})
    (tmp_path / "mallory/link.prom").symlink_to(tmp_path / "victim/.hidden")
    (tmp_path / "mallory/up.prom").symlink_to("../victim/.hidden")
    (tmp_path / "linked").symlink_to("victim")
    outside = dict.fromkeys(("mallory/link.prom", "mallory/up.prom"), "link_outside")
    assert errors(read(tmp_path)) == {**outside, "mallory/own.prom": ""}


def test_a_type_that_one_owner_claims_costs_no_other_a_series(tmp_path: Path) -> None:
    texts = {
        "a": "# TYPE gpu_job_steps_total gauge\ngpu_job_steps_total 1\n",
        "b": "# TYPE gpu_job_steps_total counter\ngpu_job_steps_total 2\n",
        "c": "# TYPE gpu_job_seconds histogram\n"
        'gpu_job_seconds_bucket{le="+Inf"} 3\ngpu_job_seconds_sum 3\ngpu_job_seconds_count 3\n',
        "d": "# TYPE gpu_job_seconds_count gauge\ngpu_job_seconds_count 4\n",
    }
    write(tmp_path, {f"{owner}/1.prom": text for owner, text in texts.items()})
    reading = read(tmp_path)
    assert set(errors(reading).values()) == {""}
    found = [(each.labels["owner"], each.name.removeprefix("gpu_job_"), each.value) for each in samples(reading)]
    of_c = [("c", f"seconds_{part}", 3) for part in ("bucket", "count", "sum")]
    assert sorted(found) == [("a", "steps_total", 1), ("b", "steps_total", 2), *of_c, ("d", "seconds_count", 4)]
    assert {family.type for family in reading.families} == {"unknown"}


def test_an_owner_who_takes_all_room_takes_none_from_another(tmp_path: Path) -> None:
    greedy = {f"000-greedy/{number:03}.prom": many() for number in range(10)}
    flooding = {f"001-flooding/{number:03}.prom": "gpu_job_x 1\n" for number in range(2 * MAX_FILES)}
    write(tmp_path, {**greedy, **flooding, "z/0.prom": "gpu_job_y 1\n" + many(100)})
    failures: list[str] = []
    reading = read(tmp_path, failures=failures)
    assert "too_many_files" in failures
    assert errors(reading)["z/0.prom"] == ""
    assert sum(sample.labels["owner"] == "z" for sample in samples(reading)) == 101
    assert len(samples(reading)) <= MAX_SERIES
    assert len(reading.files) == MAX_FILES
    assert errors(reading)["000-greedy/000.prom"] == ""


def test_a_flood_of_files_hides_neither_old_ones_nor_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_folder, "MOST_ENTRIES", 50)
    reader = TextFilesReader(tmp_path)
    write(tmp_path, {"victim/job.prom": STEPS % 1, "gone/job.prom": STEPS % 1, "own.prom": "gpu_job_z 1\n"})
    read(tmp_path, reader=reader)
    shutil.rmtree(tmp_path / "gone")
    write(tmp_path, {f"0{number:03}.prom": f'gpu_job_x{{n="{number}"}} 1\n' for number in range(600)})
    write(tmp_path, {"late/job.prom": STEPS % 2})
    found = [{file.owner: file.name for file in read(tmp_path, reader=reader).files} for _ in range(20)]
    assert all(owners["victim"] == "victim/job.prom" for owners in found)
    assert not any("gone" in owners for owners in found)
    assert all("late" in owners for owners in found[13:])
    assert "own.prom" in errors(read(tmp_path, reader=reader))


@pytest.fixture(scope="module")
def chart(repository: Path) -> Mapping[str, Any]:
    return scrape_of_the_chart(repository)


def test_the_bounds_of_a_file_lie_below_the_limits_of_the_charts_scrape(chart: Mapping[str, Any]) -> None:
    own = ("__name__", "owner")
    assert MAX_LABELS + len(own) + len(TARGET_LABELS) <= chart["labelLimit"]
    # A label that the target has as well is renamed.
    assert len("exported_") + MAX_NAME_BYTES <= chart["labelNameLengthLimit"]
    assert chart["labelValueLengthLimit"] >= MAX_NAME_BYTES
    of_16_gpus, of_the_files = 6000, 3 * MAX_FILES
    assert of_16_gpus + of_the_files + MAX_SERIES <= chart["sampleLimit"]
    assert chart["honorLabels"] is False


NAMES = st.one_of(
    st.sampled_from(["gpu_job_x", "gpu_job_x_total", "gpu_job_x_bucket", "gpu_job_x_count", "gpu_job_x_created", "up"]),
    st.builds(lambda count: "gpu_job_" + "n" * count, st.integers(0, 300)),
)
LABEL_NAMES = st.one_of(
    st.sampled_from(["le", "quantile", "rank", "instance", "owner", "__name__", "ü", ""]),
    st.builds(lambda count: "n" * count, st.integers(1, 300)),
    st.builds("l{}".format, st.integers(0, 60)),
)
LABEL_VALUES = st.one_of(
    st.sampled_from(["", "+Inf", "0.5", "1", '\\"', "\\\\", "\\n", "\\x", "\x00", "\r", "\u2028"]),
    st.text(st.characters(exclude_characters='"\\\n', codec="utf-8"), max_size=20),
    st.builds(lambda count: "v" * count, st.integers(0, 3000)),
)
VALUES = st.one_of(
    st.floats().map(str),
    st.sampled_from(["NaN", "+Inf", "-Inf", "1e999", "1_0", "0x1", "", "1 2", "1 # {} 1", "\u0661"]),
)
LABELS = st.lists(st.tuples(LABEL_NAMES, LABEL_VALUES), max_size=50)
LINES = st.one_of(
    st.builds(
        lambda name, labels, value: f"{name}{{{','.join(f'{k}={chr(34)}{v}{chr(34)}' for k, v in labels)}}} {value}",
        NAMES,
        LABELS,
        VALUES,
    ),
    st.builds("{} {}".format, NAMES, VALUES),
    st.builds("# TYPE {} {}".format, NAMES, st.sampled_from(["counter", "gauge", "histogram", "summary", "untyped"])),
    st.builds("# HELP {} {}".format, NAMES, LABEL_VALUES),
    st.sampled_from(["# EOF", "#", "# UNIT gpu_job_x seconds", "{", "gpu_job_x{", "\t", "gpu_job_x{} 1", "\x00"]),
    st.text(max_size=40),
)
FILES = st.dictionaries(
    st.sampled_from(["a/1.prom", "a/2.prom", "b/1.prom", "c.prom"]), st.lists(LINES, max_size=8).map("\n".join)
)


@settings(max_examples=40)
@given(files=FILES)
def test_whatever_files_hold_the_page_obeys_the_charts_limits(
    tmp_path_factory: pytest.TempPathFactory, chart: Mapping[str, Any], files: dict[str, str]
) -> None:
    directory = tmp_path_factory.mktemp("jobs")
    write(directory, {name: text.encode("utf-8", "replace").decode() for name, text in files.items()})
    families = read(directory).families
    pages = {form: page_of(form, foreign=families) for form in Format}
    found = {form: check(page, form, chart) if families else [] for form, page in pages.items()}
    assert len(found[Format.TEXT]) == len(found[Format.OPENMETRICS]) <= MAX_SERIES
    for sample in found[Format.TEXT]:
        assert sample.name.startswith(PREFIX)
        assert ":" not in sample.name
        assert not {*TARGET_LABELS, "gpu", "uuid", "user"} & sample.labels.keys()
        assert sample.timestamp is None
    assert len(pages[Format.TEXT]) + (1 << 20) < 10 << 20
