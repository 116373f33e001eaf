import os
import stat
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from tests.command_line import Run

from gpu_triage.cli.operator_options import parse_until
from gpu_triage.sampler.state_directory import LOCK

FILE = "maintenance-command.json"
NOW = datetime(2026, 11, 29, 13, 20, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("text", "until"),
    [
        ("90m", NOW + timedelta(minutes=90)),
        ("30d", NOW + timedelta(days=30)),
        ("18:00", NOW.replace(hour=18, minute=0)),
        ("8:15", NOW.replace(day=30, hour=8, minute=15)),
        ("2026-12-01", datetime(2026, 12, 2, tzinfo=timezone.utc)),
        ("2026-12-01T08:00", datetime(2026, 12, 1, 8, 0, tzinfo=timezone.utc)),
        ("2026-12-01T08:00+02:00", datetime(2026, 12, 1, 6, 0, tzinfo=timezone.utc)),
    ],
)
def test_a_maintenance_ends_at_a_time_of_the_host(text: str, until: datetime, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    assert parse_until(text, NOW, 30) == until


@pytest.mark.parametrize(
    "text", ["", "0m", "31d", "99999d", "tomorrow", "25:00", "2026-11-29T13:20", "9999-12-31T23:59", "0001-01-01T00:00"]
)
def test_no_end_or_one_too_far_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"18:00|within the next 30 days"):
        parse_until(text, NOW, 30)


def test_a_host_is_in_maintenance_until_it_is_ended_and_slurm_does_not_end_that_of_others(
    run: Run, tmp_path: Path
) -> None:
    def maintenance(*arguments: str) -> tuple[int, str]:
        code, out, err = run("maintenance", *arguments, "--state.directory", str(tmp_path))
        return code, out + err

    assert maintenance("status") == (1, "no maintenance\n")
    (tmp_path / LOCK).touch()  # as an exporter does
    umask = os.umask(0o077)
    code, out = maintenance("on", "--until", "2h", "--reason", "replace\tthe riser\u202e")
    os.umask(umask)
    assert (code, "replace the riser\\u202e" in out, "Wait a minute" in out) == (0, True, True)
    assert stat.S_IMODE((tmp_path / FILE).stat().st_mode) == 0o644, "the exporter has another user than root"
    assert {each.name for each in tmp_path.iterdir()} == {FILE, LOCK}, "that user could not open a lock of root's"
    assert maintenance("on", "--until", "4h", "--reason", "drained", "--source", "slurm")[0] == 0
    assert maintenance("on", "--until", "3h", "--reason", "and the fans")[0] == 0
    assert [line.rpartition(": ")[2] for line in maintenance("status")[1].splitlines()] == ["and the fans", "drained"]
    assert maintenance("off", "--source", "slurm") == (0, "maintenance ended\n")
    assert "and the fans" in maintenance("status")[1]
    assert [maintenance("off")[1], maintenance("off")[1]] == ["maintenance ended\n", "no maintenance to end\n"]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("on", "--reason", "x"), "--until is missing"),
        (("on", "--until", "2h", "--reason", "x"), "no exporter uses it; name"),
        (("on", "--until", "2h"), "--reason is missing"),
        (("on", "--until", "31d", "--reason", "x"), "not within the next 30 days"),
        (("on", "--until", "2h", "--reason", " \n"), "is no reason"),
        (("on", "--until", "2h", "--reason", "x" * 101), "at most 100 characters"),
        (("on", "--until", "2h", "--reason", "x", "--match", "instance=gpu-7"), "--alertmanager"),
        (("off", "--alertmanager", "http://a:1"), "select hosts with --match"),
        (("off", "--alertmanager", "http://a:1", "--match", "instance!=gpu-7"), "select hosts with --match"),
        (("off", "--alertmanager", "http://a:1", "--match", "gpu-7"), "is no matcher"),
        (("status", "--alertmanager", "a:1"), "is no URL of Alertmanager"),
        (
            ("on", "--until", "2h", "--reason", "x", "--state.directory", "/nowhere"),
            "name the exporter's --state.directory",
        ),
    ],
)
def test_a_mistake_begins_nothing_and_is_explained(
    run: Run, tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    directory = () if "--state.directory" in arguments else ("--state.directory", str(tmp_path))
    code, _, err = run("maintenance", *arguments, *directory)
    assert (code, said in err, list(tmp_path.iterdir())) == (2, True, []), err


def test_a_broken_file_is_replaced_by_the_next_maintenance(run: Run, tmp_path: Path) -> None:
    (tmp_path / LOCK).touch()
    (tmp_path / FILE).write_text("{")
    directory = ("--state.directory", str(tmp_path))
    assert run("maintenance", "status", *directory).code == 2
    assert run("maintenance", "on", "--until", "2h", "--reason", "riser", *directory).code == 0
    assert run("maintenance", "status", *directory).code == 0
