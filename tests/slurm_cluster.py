"""A Slurm cluster of one node with two GPUs: Debian's munged, slurmctld and slurmd, which run our scripts.

The three daemons and the jobs live in a process namespace of their own, so nothing of them outlives the cluster.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from deploy.demo.processes import free_port
from tests.conftest import RequiresTool
from tests.e2e.processes import wait_for

NODE: Final = "gpu-7"
PROGRAMS: Final = ("slurmctld", "slurmd", "munged", "sbatch")
PATIENCE_SECONDS: Final = 120.0
"""Slurm answers within a second or two on an idle machine."""

_ALONE: Final = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
DAEMONS: Final = """
munged --foreground --force --socket="$1/munge.socket" --key-file="$1/munge.key" --pid-file="$1/munged.pid" \\
    --log-file="$1/munged.log" --seed-file="$1/munge.seed" &
until munge --no-input --socket="$1/munge.socket" >/dev/null 2>&1; do sleep 0.1; done
slurmctld -D -f "$SLURM_CONF" &
slurmd -D -f "$SLURM_CONF" &
wait
"""
CONFIGURATION: Final = (Path(__file__).parent / "slurm.conf").read_text(encoding="utf-8")
_SCRIPT: Final = """#!/bin/sh
# slurmd passes no environment: what differs from an installation is where all this is.
export NODE_CHECK_SETTINGS={folder}/settings JOB_GPUS_FOLDER={folder}/jobs SLURM_CONF={folder}/slurm.conf
exec {script}
"""


class Job:
    def __init__(self, cluster: Cluster, number: str) -> None:
        self.number = number
        self._cluster = cluster

    def __getitem__(self, field: str) -> str:
        """A field as ``scontrol show job`` has it: JobState, Reason, Priority."""
        return _fields(self._cluster.scontrol("show", "job", self.number))[field]

    def starts(self) -> None:
        """Wait until its script runs; Slurm shows RUNNING from the beginning of the prolog on."""
        wait_for((self._cluster.folder / f"started-{self.number}").exists, PATIENCE_SECONDS)

    def completes(self) -> None:
        """Wait until it has ended well; a job that ended another way, or was requeued, fails the test at once."""

        def completed() -> bool:
            state = self["JobState"]
            assert state not in {"FAILED", "CANCELLED"}, self._cluster.log()
            assert self["Restarts"] == "0", self._cluster.log()
            return state == "COMPLETED"

        wait_for(completed, PATIENCE_SECONDS)

    def is_requeued(self) -> None:
        wait_for(lambda: self["Restarts"] == "1" and self["JobState"] == "PENDING", PATIENCE_SECONDS)


class Cluster:
    def __init__(self, folder: Path, repository: Path) -> None:
        self.folder = folder
        self.scripts = repository / "deploy" / "slurm"
        self._configuration = folder / "slurm.conf"
        self._host = socket.gethostname().partition(".")[0]
        self._ports = {"controller_port": free_port(), "node_port": free_port()}
        self._syslog = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)

    @contextmanager
    def running(self) -> Iterator[Cluster]:
        """Start the daemons, and end them with the ``with`` block."""
        with self._syslog, (self.folder / "output.log").open("wb") as output:
            self._prepare()
            daemons = subprocess.Popen(
                [*_ALONE, "sh", "-c", DAEMONS, "sh", self.folder],
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
            )
            try:
                wait_for(lambda: daemons.poll() is not None or self._answers(), PATIENCE_SECONDS)
                assert self._answers(), self.log()
                yield self
            finally:
                daemons.kill()
                daemons.wait()

    @property
    def environment(self) -> Mapping[str, str]:
        return {**os.environ, "SLURM_CONF": str(self._configuration)}

    def configure(self, **more: str) -> None:
        self._write_configuration(more)
        self.scontrol("reconfigure")

    def settings(self, **values: str) -> None:
        """What the scripts read, beside where this cluster has its device files and its syslog."""
        ours = {
            "NODE_CHECK_DEVICE_FILES": f"{self.folder}/dev",
            "NODE_CHECK_LOGGER": f"logger --socket {self.folder}/log",
        }
        lines = (f"{name}='{value}'\n" for name, value in {**ours, **values}.items())
        (self.folder / "settings").write_text("".join(lines))

    def submit(self, gpus: int, *, waits: bool = False) -> Job:
        """Submit a batch job on so many GPUs, which ends at once or waits for `go`."""
        wait = f"until [ -e {self.folder}/go ]; do sleep 0.1; done"
        script = f"touch {self.folder}/started-$SLURM_JOB_ID; {wait if waits else 'true'}"
        command = ["sbatch", "--parsable", f"--gres=gpu:{gpus}", "--output=/dev/null", f"--wrap={script}"]
        return Job(self, self._run(*command).strip())

    def go(self) -> None:
        (self.folder / "go").touch()

    def node(self) -> Mapping[str, str]:
        """The fields of the node, as ``scontrol show node`` has them: State, Reason."""
        return _fields(self.scontrol("show", "node", NODE))

    def reasons(self) -> str:
        """Why nodes are drained, as the README lists it."""
        return self._run("sinfo", "-R", "-o", "%60E %N")

    def scontrol(self, *arguments: str) -> str:
        return self._run("scontrol", "--oneliner", *arguments)

    def syslog(self) -> list[str]:
        """The messages since the last call, without facility, time and host."""
        lines = []
        while True:
            try:
                lines.append(self._syslog.recv(1 << 16, socket.MSG_DONTWAIT).decode().rstrip("\0"))
            except BlockingIOError:
                return [line[line.index("gpu-triage-") :] for line in lines]

    def idle(self) -> None:
        """Cancel all jobs, take back `go`, resume the node and wait until it is idle."""
        self._run("scancel", "--user=root")
        wait_for(lambda: not self._run("squeue", "--noheader"), PATIENCE_SECONDS)
        if "DRAIN" in self.node()["State"]:
            self.scontrol("update", f"NodeName={NODE}", "State=RESUME")
        wait_for(lambda: self.node()["State"] == "IDLE", PATIENCE_SECONDS)
        (self.folder / "go").unlink(missing_ok=True)
        self.syslog()

    def log(self) -> str:
        return "\n".join(path.read_text(errors="replace") for path in sorted(self.folder.glob("*.log")))

    def _answers(self) -> bool:
        command = ["scontrol", "--oneliner", "show", "node", NODE]
        said = subprocess.run(command, env=self.environment, check=False, capture_output=True, text=True)
        return said.returncode == 0 and " State=IDLE " in said.stdout

    def _prepare(self) -> None:
        for name in ("state", "spool", "dev", "jobs", "prolog.d", "epilog.d"):
            (self.folder / name).mkdir()
        key = self.folder / "munge.key"
        key.write_bytes(os.urandom(1024))
        key.chmod(0o400)
        for minor in range(2):
            os.mknod(self.folder / "dev" / f"nvidia{minor}", 0o600 | 0o020000, os.makedev(195, minor))
        (self.folder / "gres.conf").write_text(f"Name=gpu File={self.folder}/dev/nvidia[0-1]\n")
        for place, script in (
            ("prolog.d/50-gpu-triage.sh", "prolog"),
            ("prolog.d/60-job-gpus.sh", "job-gpus-prolog"),
            ("epilog.d/50-gpu-triage.sh", "epilog"),
            ("epilog.d/60-job-gpus.sh", "job-gpus-epilog"),
            ("health-check.sh", "health-check"),
        ):
            path = self.folder / place
            path.write_text(_SCRIPT.format(folder=self.folder, script=self.scripts / f"{script}.sh"))
            path.chmod(0o755)
        self._syslog.bind(str(self.folder / "log"))
        self.settings()
        self._write_configuration({})

    def _write_configuration(self, more: Mapping[str, str]) -> None:
        text = CONFIGURATION.format(folder=self.folder, host=self._host, node=NODE, **self._ports)
        self._configuration.write_text(text + "".join(f"{name}={value}\n" for name, value in more.items()))

    def _run(self, *command: str) -> str:
        said = subprocess.run(command, env=self.environment, check=False, capture_output=True, text=True)
        assert said.returncode == 0, f"{command}: {said.stderr}\n{self.log()}"
        return said.stdout


@contextmanager
def cluster(repository: Path, requires_tool: RequiresTool) -> Iterator[Cluster]:
    """A cluster; the test is skipped where it cannot be had."""
    for program in PROGRAMS:
        requires_tool(program)
    # Not in pytest's folder: the path of a socket has at most 107 characters.
    folder = Path(tempfile.mkdtemp(prefix="slurm-", dir="/var/tmp"))
    try:
        _needs_root(folder)
        with Cluster(folder, repository).running() as running:
            yield running
    finally:
        shutil.rmtree(folder)


def _needs_root(folder: Path) -> None:
    command = [*_ALONE, "mknod", str(folder / "probe"), "c", "195", "0"]
    said = subprocess.run(command, check=False, capture_output=True, text=True)
    if said.returncode != 0:
        pytest.skip(f"slurmd and its device files need root: {said.stderr.strip()}")


def _fields(line: str) -> dict[str, str]:
    """The fields of one line of scontrol; a value may contain spaces."""
    return dict(re.findall(r"(\w+)=(.*?)(?= \w+=|\s*$)", line))
