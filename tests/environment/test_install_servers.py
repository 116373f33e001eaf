"""What `make demo` installs where it is missing, played with programs that only note it, and what `make run` starts."""

import os
import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.parts import TESTS

SCRIPT = TESTS / "environment" / "install-servers.sh"
NOTES = '#!/bin/sh\necho "$(basename "$0") $*" >>"{log}"\n'


class Machine:
    """A machine with only these programs on its PATH; an installed package brings the programs of its name."""

    def __init__(self, folder: Path, programs: Iterable[str]) -> None:
        self.bin, self.log = folder / "bin", folder / "log"
        self.bin.mkdir(parents=True)
        self.log.touch()
        for program in ("sh", "env", "basename", "cat", "touch"):
            (self.bin / program).symlink_to(shutil.which(program) or "")
        for program in ("tee", "chmod", "rm", "systemctl", "apt-get", *programs):
            self._add(program)
        self._add("id", "#!/bin/sh\necho 0\n")

    def _add(self, program: str, text: str = "") -> None:
        path = self.bin / program
        path.write_text(text or NOTES.format(log=self.log))
        path.chmod(0o755)

    def demo(self, **variables: str) -> subprocess.CompletedProcess[str]:
        # Programs in /usr/sbin, which the script adds, must not count.
        script = SCRIPT.read_text().replace("PATH=$PATH:/usr/sbin:/sbin", "")
        environment = {"PATH": str(self.bin), **variables}
        command = [shutil.which("sh") or "sh", "-c", script, str(SCRIPT), "demo"]
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    @property
    def installed(self) -> list[str]:
        """The packages of all calls of apt-get, in order."""
        found = re.findall(r"^apt-get .* install .*--no-install-recommends (.*)$", self.log.read_text(), re.MULTILINE)
        return " ".join(found).split()


def test_the_demo_installs_its_two_servers_only_when_told_to(tmp_path: Path) -> None:
    machine = Machine(tmp_path / "one", ["prometheus"])
    result = machine.demo()
    assert result.returncode == 1
    assert "apt-get install --no-install-recommends prometheus-alertmanager" in result.stderr
    assert "make demo INSTALL=1" in result.stderr
    assert machine.log.read_text() == ""
    assert machine.demo(INSTALL="1").returncode == 1  # this apt-get brings nothing
    assert machine.installed == ["prometheus-alertmanager"]
    both = Machine(tmp_path / "both", ["prometheus", "alertmanager"])
    result = both.demo()
    assert (result.returncode, result.stderr, both.log.read_text()) == (0, "", "")


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (
            "--log.level debug",
            "serve --simulate h100-8-bad-night --simulate-at 30m --simulate-pace 4 --log.level debug",
        ),
        ("--simulate-at 5m", "serve --simulate h100-8-bad-night --simulate-at 5m"),
        ("--simulate dual-a10", "serve --simulate dual-a10"),
        ("--simulate=dual-a10 --simulate-at 5m", "serve --simulate=dual-a10 --simulate-at 5m"),
    ],
)
def test_make_run_starts_at_a_moment_to_see(repository: Path, tmp_path: Path, arguments: str, expected: str) -> None:
    for name, text in (("python", "exit 1"), ("gpu-triage", 'echo "$*"')):
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    command = ["make", "--old-file=.venv/.stamp-runtime", "--no-print-directory", "run", f"BIN={tmp_path}"]
    quiet = {key: value for key, value in os.environ.items() if key not in {"MAKEFLAGS", "MFLAGS", "MAKELEVEL"}}
    result = subprocess.run(
        [*command, f"ARGS={arguments}"], cwd=repository, env=quiet, capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == expected
    assert "every reading is made up" in result.stderr
