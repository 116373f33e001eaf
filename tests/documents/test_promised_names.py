"""No name that users build on goes without a version that may break it and a line in the changelog."""

from pathlib import Path

import pytest
from deploy.generate.names import CHANGELOG, FOLDER, broken, released
from tests.conftest import REPOSITORY
from tests.program_output import output_of

from gpu_triage import __version__

NAMES = "metric gpu_a\ntype gpu_a gauge\nlabel gpu_a uuid\nfinding gpu.lost\nflag check --for\n"
REMOVED = "## [Unreleased]\n\n### Removed\n\n- {}\n\n## [0.1.0]\n\n### Removed\n\n- `gpu.lost`\n"


def test_this_version_keeps_the_names_of_the_last_release() -> None:
    lists = {path.stem: path.read_text(encoding="utf-8") for path in (REPOSITORY / FOLDER).glob("*.txt")}
    assert broken(__version__, lists, CHANGELOG.read_text(encoding="utf-8")) == []
    assert released(REPOSITORY, __version__) == []


def test_a_changed_list_of_a_released_version_and_a_commit_after_it_fail(tmp_path: Path) -> None:
    git = ("git", "-C", str(tmp_path), "-c", "user.name=a", "-c", "user.email=a@example.org")
    (path := tmp_path / FOLDER / "1.0.0.txt").parent.mkdir(parents=True)
    path.write_text("alert A\n")
    for command in (["init"], ["add", "--all"], ["commit", "--message=a"], ["tag", "v1.0.0"]):
        output_of(*git, *command)
    assert released(tmp_path, "1.0.0") == []
    output_of(*git, "commit", "--allow-empty", "--message=b")
    assert released(tmp_path, "1.0.0") == ["1.0.0 is released; raise __version__, then `make regenerate`"]
    path.write_text("alert B\n")
    (wrong,) = released(tmp_path, "1.1.0")
    assert wrong == "docs/names/1.0.0.txt is not as released; `git checkout v1.0.0 docs/names/1.0.0.txt`"


@pytest.mark.parametrize(
    ("last", "version", "lacks", "changelog", "lost"),
    [
        ("0.1.0", "0.2.0", "flag check --for", REMOVED.format("`check --for`: use `--during`"), []),
        ("0.1.0", "0.1.1", "flag check --for", REMOVED.format("`check --for`"), ["flag check --for"]),
        ("1.4.0", "1.5.0", "flag check --for", REMOVED.format("`check --for`"), ["flag check --for"]),
        ("1.4.0", "2.0.0", "flag check --for", REMOVED.format("`check --for`"), []),
        ("0.1.0", "0.2.0", "gpu_a", REMOVED.format("`gpu_a`: use `gpu_b`"), []),
        ("0.1.0", "0.2.0", " uuid", REMOVED.format("`gpu_a`"), ["label gpu_a uuid"]),
        ("0.1.0", "0.2.0", "finding gpu.lost", REMOVED.format("`gpu_a`"), ["finding gpu.lost"]),
    ],
    ids=["minor 0.x", "patch", "minor", "major", "what belongs to it", "one label", "announced by an older version"],
)
def test_only_a_version_that_may_break_a_name_and_announces_it_lacks_one(
    last: str, version: str, lacks: str, changelog: str, lost: list[str]
) -> None:
    rest = "".join(line for line in NAMES.splitlines(keepends=True) if lacks not in line)
    assert rest != NAMES
    assert broken(version, {"0.0.1": "metric gone", last: NAMES, version: rest}, changelog) == lost


def test_a_name_may_be_new_and_the_last_release_is_the_highest_below() -> None:
    lists = {"0.9.0": "alert A\n", "0.10.0": "alert B\n", "0.10.1": "alert B\nalert C\n", "0.11.0": ""}
    assert broken("0.10.1", lists, "") == []
    assert broken("0.9.0", lists, "") == []
