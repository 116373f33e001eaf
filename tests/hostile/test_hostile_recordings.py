"""A recording that somebody sends does nothing to who opens it, whatever it claims about files, links and times."""

import itertools
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from tests.recorded import record

from gpu_triage.cli.main import group
from gpu_triage.cli.run import run_cli
from gpu_triage.driver.kernel.files import is_present, names_in, read_link, read_text, real_path, refusal, text_of
from gpu_triage.record.bundle import write_recording
from gpu_triage.record.recording import ABSENT, FOUND, Recording, TimedAnswer
from gpu_triage.record.replay import replayed_machine
from gpu_triage_simulator import VirtualClock, load_scenario

OWNED = b"owned"
PATHS = ("x", "x/y", "x/../z", ".x.partial")
COMMANDS = (("check", "--from"), ("check", "--for", "2s", "--replay"), ("judge", "--replay"))


@pytest.fixture(scope="module")
def harmless() -> Recording:
    return record(load_scenario("dual-a10"))[0]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of who opens it, below a folder that also has the place of temporary files."""
    home = tmp_path / "home"
    home.mkdir()
    (home / ".bashrc").write_text("precious")
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    return home


def entries(targets: tuple[str, ...]) -> list[tuple[str, str, bytes | None]]:
    """A file, a link, a folder or nothing at each of a few paths, of which some climb out of their folder."""
    kinds = [("text", OWNED), ("names", b"x/.."), ("text", None), *(("link", target.encode()) for target in targets)]
    return [(question, path, content) for path in PATHS for question, content in kinds]


def everything(folder: Path) -> dict[Path, object]:
    found = sorted(folder.rglob("*"))
    return {each: each.readlink() if each.is_symlink() else each.is_file() and each.read_bytes() for each in found}


def evil(home: Path) -> Iterator[TimedAnswer]:
    """All orders of three entries, each in a folder of its own, and the same at paths that climb to the home."""
    climbing = "../" * 30 + str(home / ".bashrc").lstrip("/")
    of_each = entries(("y", climbing, str(home / ".bashrc")))
    for number, chosen in enumerate(itertools.product(of_each, repeat=3)):
        for second, (question, path, content) in enumerate(chosen):
            code, outs = (ABSENT, ()) if content is None else (FOUND, (content,))
            yield TimedAnswer(float(second), f"{question} sys/{number}/{path}", code, outs)
    yield TimedAnswer(0.0, f"text sys/{climbing}", FOUND, (OWNED,))


@pytest.mark.parametrize("name", ["evil.tar.gz", "evil"])
def test_a_replay_changes_nothing(
    home: Path, harmless: Recording, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    top = home.parent
    files = (*evil(home), *harmless.files)
    write_recording(replace(harmless, files=files), top / name)
    before = everything(top)
    for command in COMMANDS:
        assert run_cli(group, [*command, str(top / name)]) in {0, 1}
        assert "GPU" in capsys.readouterr().out
        assert everything(top) == before

    clock = VirtualClock()
    with replayed_machine(top / name, clock=clock) as machine:
        own = next((top / "tmp").iterdir())
        clock.advance(5)
        said: set[object] = set()
        for path in dict.fromkeys(each.key.partition("/")[2] for each in files):
            place = machine.sysfs / path if ".." not in path else f"{machine.sysfs}/{path}"
            said |= {text_of(place), read_link(place), real_path(place), refusal(place), *names_in(place)}
            said |= {is_present(place), *names_in(place, folders=True)}
        assert {"owned", "..", str(home / ".bashrc"), None, True, False} <= said
        assert everything(top) == {**before, own: False, own / "kmsg": (own / "kmsg").read_bytes()}
    assert everything(top) == before


def test_of_many_answers_about_a_few_files_the_latest_is_in_effect(tmp_path: Path, harmless: Recording) -> None:
    write_recording(replace(harmless, files=()), tmp_path / "many")
    with (tmp_path / "many" / "files.jsonl").open("w") as file:
        for number in range(300_000):
            text = str(number)
            file.write(json.dumps([number // 50, f"text proc/{number % 50}/stat", 0, [text, len(text)]]) + "\n")
    clock = VirtualClock()
    with replayed_machine(tmp_path / "many", clock=clock) as machine:
        clock.advance(100.5)
        assert read_text(machine.procfs / "7" / "stat") == f"{100 * 50 + 7}"
    assert run_cli(group, ["check", "--from", str(tmp_path / "many")]) in {0, 1}
