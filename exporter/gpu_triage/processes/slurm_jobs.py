"""Which job of Slurm has which GPU, from files that its prolog writes and its epilog removes.

Nothing that an unprivileged process may read on a node says which GPUs a job without processes was given: with cgroup
v2 the list of devices is a program in the kernel, and slurmd's spool folder and the environments of processes are for
root. The prolog knows, and runs as root on every node of the job.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

from gpu_triage.config import INDEX
from gpu_triage.errors import HostReadFailed
from gpu_triage.host.boot import read_boot
from gpu_triage.host.textfile_folder import Folder
from gpu_triage.kernel.files import parse_count, parse_cpu_list, read_names
from gpu_triage.machine import Moment, SlurmJob, index_name, minor_name
from gpu_triage.processes.holdings import Holdings
from gpu_triage.processes.pids import printable
from gpu_triage.subjects.contract import HostCollector
from gpu_triage.subjects.metric import Tier
from gpu_triage.subjects.rounds import HostRound

SUFFIX: Final = ".job"
MAX_FILES: Final = 1024
MAX_BYTES: Final = 16 << 10
"""Bounds on what the prolog may leave: files in the folder, and bytes of one."""

_LONGEST_NAME: Final = 64
_JOB_ID: Final = re.compile(r"[0-9]{1,10}")
_UUID: Final = re.compile(r"(?:GPU|MIG)-[0-9A-Za-z/-]{1,100}")


class JobFile(NamedTuple):
    """What one file says: a job, and its devices as `SlurmJobs` names them."""

    job: SlurmJob
    devices: frozenset[str]


class JobDirectory(Holdings[SlurmJob]):
    """Who has what, by the files of Slurm's prolog."""

    def __init__(self, directory: Path, numbers: str, fresh_for_seconds: float) -> None:
        """A directory that is empty until refreshed.

        Args:
            directory: where the prolog writes.
            numbers: INDEX where Slurm numbers GPUs as NVML does, MINOR where by their device files.
            fresh_for_seconds: how long a reading counts.
        """
        super().__init__(fresh_for_seconds)
        self._directory = directory
        self._named = index_name if numbers == INDEX else minor_name

    def refresh(self, at: Moment, booted_at: float | None) -> tuple[str, ...]:
        """As SlurmJobs."""
        names = read_names(self._directory)
        if names is None:
            raise HostReadFailed("missing", self._directory, "no such folder; the prolog should make it")
        failures: list[str] = []
        found: dict[str, set[SlurmJob]] = {}
        mine = [name for name in names if name.endswith(SUFFIX) or name.isdecimal()]
        if len(mine) > MAX_FILES:
            failures.append("too_many_jobs")
        for entry in self._files(mine[:MAX_FILES], booted_at, failures):
            for device in entry.devices:
                found.setdefault(device, set()).add(entry.job)
        self.keep({device: frozenset(jobs) for device, jobs in found.items()}, at)
        return tuple(failures)

    def _files(self, names: list[str], booted_at: float | None, failures: list[str]) -> Iterator[JobFile]:
        try:
            folder = Folder(self._directory)
        except OSError as error:
            raise HostReadFailed("io_error", self._directory, error.strerror or str(error)) from error
        try:
            for name in names:
                try:
                    text = _read(folder, name, booted_at)
                    if text is None:
                        continue
                    yield from parse_list(name, text) if name.isdecimal() else [parse_file(text, self._named)]
                except HostReadFailed as failed:
                    failures.append(failed.reason)
                except ValueError:
                    failures.append("malformed")
        finally:
            folder.close()


def _read(folder: Folder, name: str, booted_at: float | None) -> str | None:
    """Content of a file; None for one that is gone, or from before the boot.

    Raises:
        HostReadFailed: it is no file, too large, or cannot be read.
    """
    try:
        descriptor = folder.open(name)
    except FileNotFoundError:
        return None  # the epilog removed it meanwhile
    except PermissionError as error:
        raise HostReadFailed("no_permission", name, error.strerror or "") from error
    except OSError as error:
        raise HostReadFailed("io_error", name, error.strerror or "") from error
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise HostReadFailed("malformed", name, "no regular file")
        if status.st_size > MAX_BYTES:
            raise HostReadFailed("too_large", name, f"more than {MAX_BYTES} bytes")
        if booted_at is not None and status.st_mtime < booted_at:
            return None
        return os.read(descriptor, MAX_BYTES).decode("utf-8", "replace")
    except OSError as error:
        raise HostReadFailed("io_error", name, error.strerror or "") from error
    finally:
        os.close(descriptor)


def parse_file(text: str, named: Callable[[int], str]) -> JobFile:
    """The job of a ``*.job`` file: lines ``NAME=value``, as variables stand in the prolog's environment.

    ``SLURM_JOB_ID`` and ``SLURM_JOB_GPUS`` must be there, ``SLURM_JOB_USER`` and ``SLURM_JOB_ACCOUNT`` may be. Where
    ``CUDA_VISIBLE_DEVICES`` has UUIDs, as Slurm writes for MIG devices, it is believed instead of the numbers.

    Args:
        text: content of the file.
        named: makes the name of a device from Slurm's number of it.

    Raises:
        ValueError: it names no job or no GPU.
    """
    pairs = (line.strip().partition("=") for line in text.split("\n"))
    said = {name: value.strip("\"' ") for name, equals, value in pairs if equals}
    numbers, visible = said.get("SLURM_JOB_GPUS", ""), said.get("CUDA_VISIBLE_DEVICES", "")
    if any(_UUID.fullmatch(each) for each in visible.split(",")):
        numbers = visible
    job = _job(said.get("SLURM_JOB_ID", ""), said.get("SLURM_JOB_USER", ""), said.get("SLURM_JOB_ACCOUNT", ""))
    devices = frozenset(_devices(numbers, named))
    if not devices:
        raise ValueError("no GPU")
    return JobFile(job, devices)


def parse_list(name: str, text: str) -> Iterator[JobFile]:
    """The jobs of a file as dcgm-exporter reads them: its name is a GPU's index, each line the number of a job.

    Raises:
        ValueError: a line or the name is no such number.
    """
    device = frozenset({index_name(parse_count(name))})
    for line in text.split("\n"):
        if line.strip():
            yield JobFile(_job(line.strip(), "", ""), device)


def _job(number: str, user: str, account: str) -> SlurmJob:
    if not _JOB_ID.fullmatch(number):
        raise ValueError(f"{number[:40]!r} is no number of a job")
    return SlurmJob(number, *(printable(each)[:_LONGEST_NAME] for each in (user, account)))


def _devices(text: str, named: Callable[[int], str]) -> Iterator[str]:
    for part in text.split(","):
        if _UUID.fullmatch(part):
            yield part
        else:
            yield from map(named, sorted(parse_cpu_list(part)))


def read_slurm_jobs(round_: HostRound) -> None:
    """Nothing; the machine's SlurmJobs are refreshed.

    Raises:
        HostReadFailed: the folder is missing or cannot be read.
    """
    machine = round_.machine
    if machine.slurm is not None:
        round_.failures.extend(machine.slurm.refresh(round_.at, read_boot(machine.procfs).began_at))


SLURM_JOBS = HostCollector(
    name="slurm_jobs",
    about="which job of Slurm has which GPU",
    tier=Tier.MEDIUM,
    reader=lambda _config: read_slurm_jobs,
    needs="slurm_jobs_directory",
    own_lane=True,
)
