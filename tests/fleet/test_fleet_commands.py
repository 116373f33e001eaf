"""The commands that start the examples: those of the README run, and a wrong one says what is wrong."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from deploy.fleet.topologies import TOPOLOGIES
from tests.conftest import RequiresTool

README = Path(__file__).resolve().parents[2] / "deploy/fleet/README.md"
COMMANDS = re.findall(r"^\$ make fleet ARGS='([^']+)'$", README.read_text(encoding="utf-8"), re.MULTILINE)


def _fleet(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "deploy.fleet", *arguments]
    return subprocess.run(command, cwd=README.parents[2], capture_output=True, text=True, timeout=300, check=False)


def test_the_readme_starts_every_topology() -> None:
    assert {shlex.split(each)[0] for each in COMMANDS} == set(TOPOLOGIES)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("arguments", COMMANDS)
def test_the_commands_of_the_readme_run(arguments: str, tmp_path: Path, requires_tool: RequiresTool) -> None:
    for program in ("prometheus", "prometheus-alertmanager", "victoria-metrics"):
        requires_tool(program)
    words = shlex.split(arguments)
    if "--directory" in words:
        words[words.index("--directory") + 1] = str(tmp_path / "fleet")
    ended = _fleet(*words, "--for", "1")
    assert ended.returncode == 0, ended.stderr
    for part in TOPOLOGIES[words[0]].parts:
        assert re.search(rf"^  {part.name} +http://127\.0\.0\.1:\d+ ", ended.stdout, re.MULTILINE), ended.stdout


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ("", "Missing argument '{shards|ha|victoria|agent}'"),
        (
            "shards --port nowhere=9090",
            "--port nowhere: there is no such server or host; there are alertmanager, shard-0",
        ),
        ("shards --port above=0", "'0' is no port, 1 to 65535"),
        ("shards --host gpu-a", "'gpu-a' is not NAME=SCENARIO"),
        ("shards --host gpu-a=none-such", "no scenario 'none-such'; known are"),
        ("shards --host above=idle-downshift", "'above' is the name of two servers or hosts"),
        ("shards --host Gpu_A=idle-downshift", "'Gpu_A' cannot be a host's name: use lower-case letters"),
        ("shards --directory .", "--directory .: File exists; name one that does not exist yet"),
    ],
)
def test_a_wrong_command_says_what_is_wrong(arguments: str, told: str) -> None:
    ended = _fleet(*shlex.split(arguments))
    assert ended.returncode in {1, 2}
    assert told in ended.stderr
