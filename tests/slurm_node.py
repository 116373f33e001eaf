"""A node of a Slurm cluster without Slurm: stand-ins note what scontrol and logger are told."""

import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from deploy.demo.processes import free_port
from tests.e2e.processes import exporter, wait_for
from tests.rig import scenario_with

GO, HOLD = 0, 1
"""Exit codes of a prolog: the job starts, or it does not and slurmd drains the node."""
LOST = 'at = "5s"\ngpu = 1\neffect = { kind = "lost" }'
NOBODY = f"http://127.0.0.1:{free_port()}"
"""Where no exporter answers."""

SCONTROL = """#!/bin/sh
case "$1 $2" in
    "show config") exec cat {config} ;;
    "show node") exec cat {state} ;;
esac
echo "$@" >> {told}
"""
RECOMMENDED = {
    "Epilog": "{scripts}/epilog.sh",
    "HealthCheckInterval": "60 sec",
    "HealthCheckNodeState": "ANY",
    "HealthCheckProgram": "{scripts}/health-check.sh",
    "Prolog": "{folder}/*true",
    "PrologEpilogTimeout": "65534",
    "PrologFlags": "Alloc,X11",
    "SchedulerParameters": "bf_continue,nohold_on_prolog_fail",
    "SlurmUser": "slurm(64030)",
}
UNSET = "(null)"


class Node:
    """A node of a cluster: its scripts, with a stand-in for scontrol that notes what it is told."""

    def __init__(self, folder: Path, repository: Path) -> None:
        self.scripts = repository / "deploy" / "slurm"
        self._folder = folder
        self._state = folder / "state"
        self._told = folder / "told"
        self._syslog = folder / "syslog"
        self._state.write_text("NodeName=gpu-7 Arch=x86_64 Gres=gpu:2 State=IDLE")
        self._told.touch()
        self._syslog.touch()
        for slot in ("0000:65:00.0", "0000:b3:00.0"):
            (folder / "pci" / slot).mkdir(parents=True)
            (folder / "pci" / slot / "vendor").write_text("0x10de\n")
        self.program("exit 99")
        self._write("scontrol", SCONTROL.format(state=self._state, config=folder / "config", told=self._told))
        (folder / "gpu-triage-or-true").symlink_to(self.scripts / "job.sh")
        self._write("logger", f'#!/bin/sh\necho "$@" >> {self._syslog}\n')
        self.configured()

    def program(self, script: str) -> None:
        self._write("gpu-triage", script if script.startswith("#!") else f"#!/bin/sh\n{script}\n")

    def has_no_program(self) -> None:
        (self._folder / "gpu-triage").unlink()

    def has_no_gpus(self) -> None:
        shutil.rmtree(self._folder / "pci")

    def configured(self, **changes: str) -> None:
        """What slurm.conf says and slurmctld runs with: as the README recommends, but for these changes."""
        values = {
            name: value.format(folder=self._folder, scripts=self.scripts)
            for name, value in (RECOMMENDED | changes).items()
        }
        file = self.slurm_conf
        told = (f"{name:<24}= {value}\n" for name, value in (values | {"SLURM_CONF": str(file)}).items())
        (self._folder / "config").write_text("".join(told))
        file.write_text("".join(f"{name}={value}\n" for name, value in values.items() if value != UNSET))

    @property
    def slurm_conf(self) -> Path:
        return self._folder / "slurm.conf"

    def is_draining(self) -> None:
        self.is_in("IDLE+DRAIN", "disk")

    def is_in(self, state: str, reason: str = "", user: str = "root") -> None:
        why = f" Reason={reason} [{user}@2026-11-22T10:00:00]" if reason else ""
        self._state.write_text(f"NodeName=gpu-7 Arch=x86_64 State={state} ThreadsPerCore=2{why} Comment=[none]")

    def numbers(self, **slots: str) -> None:
        for number, slot in slots.items():
            folder = self._folder / "driver" / slot
            folder.mkdir(parents=True)
            minor = number.removeprefix("nvidia")
            (folder / "information").write_text(f"Model: \t\t NVIDIA A10\nDevice Minor: \t {minor}\n")

    def run(self, script: str, url: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return self.run_file(self.scripts / f"{script}.sh", url, **environment)

    def run_file(self, script: Path, url: str, *flags: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a script that is elsewhere."""
        given = {
            "PATH": f"{self._folder}:/usr/bin:/bin",
            "SLURMD_NODENAME": "gpu-7",
            "NODE_CHECK_SETTINGS": "/nonexistent",
            "NODE_CHECK_URL": url,
            "NODE_CHECK_START_SECONDS": "0",
            "JOB_GPUS_FOLDER": str(self._folder / "jobs"),
            "NODE_CHECK_DEVICE_FILES": str(self._folder / "dev"),
            "NODE_CHECK_DRIVER_FILES": str(self._folder / "driver"),
            "NODE_CHECK_PCI_DEVICES": str(self._folder / "pci"),
        }
        return subprocess.run([script, *flags], env=given | environment, check=False, capture_output=True, text=True)

    def prolog(self, url: str, gpus: str, **environment: str) -> subprocess.CompletedProcess[str]:
        return self.run("prolog", url, SLURM_JOB_GPUS=gpus, SLURM_JOB_ID="42", **environment)

    @property
    def told(self) -> list[str]:
        """What scontrol was told of the node."""
        return [line for line in self._told.read_text().splitlines() if not line.startswith("update JobId=")]

    @property
    def comments(self) -> list[str]:
        """What scontrol was told of jobs."""
        return [line for line in self._told.read_text().splitlines() if line.startswith("update JobId=")]

    @property
    def syslog(self) -> list[str]:
        """The lines that were sent to syslog, each with the options of logger."""
        return self._syslog.read_text().splitlines()

    def _write(self, name: str, script: str) -> None:
        path = self._folder / name
        path.write_text(script)
        path.chmod(0o755)


def lines_at(url: str) -> str:
    """The verdict; empty while the exporter has none."""
    request = urllib.request.Request(f"{url}/api/v1/verdict", headers={"Accept": "text/plain"})
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            lines: str = answer.read().decode()
    except urllib.error.HTTPError as starting:
        if starting.code != 503:
            raise
        return ""
    return lines


@contextmanager
def exporter_of_a_sick_gpu(folder: Path) -> Iterator[str]:
    """The URL of an exporter whose GPU 1 is lost."""
    scenario_with(folder, "idle-downshift", LOST)
    folders = ("--slurm.jobs-directory", str(folder / "jobs"), "--state.directory", str(folder))
    with exporter(folder, "--simulate", str(folder / "idle-downshift-changed.toml"), *folders) as running:
        url = f"http://{running.address}"
        wait_for(lambda: "\tcritical\tgpu.lost\t" in lines_at(url), 60)
        yield url
