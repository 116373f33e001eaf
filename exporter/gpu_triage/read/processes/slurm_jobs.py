"""Which Slurm job has which GPU, from files that Slurm's prolog writes and its epilog removes.

An unprivileged process on a node cannot find out which GPUs a job without processes was allocated: with cgroup v2 the
device list is an eBPF program, and slurmd's spool folder and process environments are only readable by root. The
prolog has this information and runs as root on every node of the job.
"""

import os
import re
import stat
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from gpu_triage.driver.kernel.files import parse_count, parse_cpu_list, read_names
from gpu_triage.driver.kernel.job_folder import Folder
from gpu_triage.driver.kernel.procfs import read_boot
from gpu_triage.errors import HostReadFailed
from gpu_triage.machine import Holder, Moment, index_name, minor_name
from gpu_triage.options.config import INDEX
from gpu_triage.read.metrics.contract import HostCollector
from gpu_triage.read.metrics.metric import Tier
from gpu_triage.read.processes.allocation import AllocationCache, refreshing

SUFFIX: Final = ".job"
MAX_FILES: Final = 1024
MAX_BYTES: Final = 16 << 10
"""Limits on the prolog's output: files in the folder, and bytes per file."""

_LONGEST_NAME: Final = 64
_JOB_ID: Final = re.compile(r"[0-9]{1,10}")
_UUID: Final = re.compile(r"(?:GPU|MIG)-[0-9A-Za-z/-]{1,100}")


class JobDirectory(AllocationCache):
    def __init__(self, directory: Path, numbers: str, fresh_for_seconds: float, procfs: Path) -> None:
        """`numbers` is INDEX if Slurm numbers GPUs by NVML index, MINOR if by device minor number.

        A reboot, as `procfs` has it, ended the jobs of all earlier files.
        """
        super().__init__(fresh_for_seconds)
        self._directory, self._procfs = directory, procfs
        self._named = index_name if numbers == INDEX else minor_name

    def refresh(self, at: Moment) -> tuple[str, ...]:
        names = read_names(self._directory)
        if names is None:
            raise HostReadFailed("missing", self._directory, "no such folder; the prolog should make it")
        failures: list[str] = []
        mine = [name for name in names if name.endswith(SUFFIX) or name.isdecimal()]
        if len(mine) > MAX_FILES:
            failures.append("too_many_jobs")
        self.keep(self._held(mine[:MAX_FILES], failures), at)
        return tuple(failures)

    def _held(self, names: list[str], failures: list[str]) -> Iterator[tuple[str, Holder]]:
        booted_at = read_boot(self._procfs).began_at
        try:
            folder = Folder(self._directory)
        except OSError as error:
            raise HostReadFailed("io_error", self._directory, error.strerror or str(error)) from error
        with closing(folder):
            for name in names:
                try:
                    if (text := _read(folder, name, booted_at)) is not None:
                        yield from parse_list(name, text) if name.isdecimal() else parse_file(text, self._named)
                except FileNotFoundError:
                    pass  # removed by the epilog since we listed the folder
                except OSError as error:
                    failures.append("no_permission" if isinstance(error, PermissionError) else "io_error")
                except HostReadFailed as failed:
                    failures.append(failed.reason)
                except ValueError:
                    failures.append("malformed")


def _read(folder: Folder, name: str, booted_at: float | None) -> str | None:
    """Read a file; None if it is older than the boot."""
    descriptor = folder.open(name)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise ValueError(f"{name} is no regular file")
        if status.st_size > MAX_BYTES:
            raise HostReadFailed("too_large", name, f"more than {MAX_BYTES} bytes")
        if booted_at is not None and status.st_mtime < booted_at:
            return None
        return os.read(descriptor, MAX_BYTES).decode("utf-8", "replace")
    finally:
        os.close(descriptor)


def parse_file(text: str, named: Callable[[int], str]) -> Iterator[tuple[str, Holder]]:
    """Parse a ``*.job`` file: lines ``NAME=value``, as in the prolog's environment; the first of each name counts.

    Yields its devices, by UUID or as `named` by number, with the job.

    ``SLURM_JOB_ID`` and ``SLURM_JOB_GPUS`` are required, ``SLURM_JOB_USER`` and ``SLURM_JOB_ACCOUNT`` optional. If
    ``CUDA_VISIBLE_DEVICES`` contains UUIDs, as Slurm writes for MIG devices, it takes precedence over the numbers.
    """
    pairs = (line.strip().partition("=") for line in reversed(text.split("\n")))
    said = {name: value.strip("\"' ") for name, equals, value in pairs if equals}
    numbers, visible = said.get("SLURM_JOB_GPUS", ""), said.get("CUDA_VISIBLE_DEVICES", "")
    if any(_UUID.fullmatch(each) for each in visible.split(",")):
        numbers = visible
    job = _job(said.get("SLURM_JOB_ID", ""), said.get("SLURM_JOB_USER", ""), said.get("SLURM_JOB_ACCOUNT", ""))
    devices = frozenset(_devices(numbers, named))
    if not devices:
        raise ValueError("no GPU")
    yield from ((device, job) for device in devices)


def parse_list(name: str, text: str) -> Iterator[tuple[str, Holder]]:
    """Parse a file in dcgm-exporter's format: the file name is a GPU index, each line a job number."""
    for line in text.split("\n"):
        if line.strip():
            yield index_name(parse_count(name)), _job(line.strip(), "", "")


def _job(number: str, user: str, account: str) -> Holder:
    if not _JOB_ID.fullmatch(number):
        raise ValueError(f"{number[:40]!r} is not a job number")
    return Holder(slurm_job_id=number, user=user[:_LONGEST_NAME], account=account[:_LONGEST_NAME])


def _devices(text: str, named: Callable[[int], str]) -> Iterator[str]:
    for part in text.split(","):
        if _UUID.fullmatch(part):
            yield part
        else:
            yield from map(named, sorted(parse_cpu_list(part)))


SLURM_JOBS = HostCollector(
    about="which job of Slurm has which GPU",
    tier=Tier.MEDIUM,
    reader=lambda _config: refreshing(lambda machine: machine.slurm),
    needs="slurm_jobs_directory",
    own_lane=True,
)
