"""The command ``gpu-triage record``: arguments, output and exit codes."""

import math
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Final

import click

from gpu_triage.cli.machines import live_host
from gpu_triage.cli.measure import sample_for
from gpu_triage.cli.one_shot import for_option, host_options
from gpu_triage.log import configure
from gpu_triage.machine import Machine
from gpu_triage.options.config import Config
from gpu_triage.options.options_command import OptionsCommand
from gpu_triage.options.values import duration
from gpu_triage.record.bundle import prepare_target, write_recording
from gpu_triage.record.capture import Capture
from gpu_triage.record.masking import Masker, local_masker, masked
from gpu_triage.record.recording import Recording
from gpu_triage.sampler.sampler import Sampler

_OPTIONS: Final = frozenset({"path.procfs", "path.sysfs", "path.kmsg", "simulate", "simulate-at", "config.file"})
_MOST_BYTES: Final = 16 << 20
"""Limit for what is kept in memory, compressed; more than ten minutes of the largest hosts."""


@click.command("record", cls=OptionsCommand, short_help="Record this host for a bug report or a test.")
@click.argument("target", type=Path, metavar="DIR|FILE.tar.gz")
@click.option("--force", is_flag=True, help="Replace the recording that is there.")
@for_option("10s", duration("1s", "10m"))
@host_options(lambda option: option.key in _OPTIONS)
def record_command(*, config: Config, target: Path, force: bool, seconds: float) -> int:
    """Record this host for a bug report, or as a fixture of a test: gpu-triage serve --replay plays it.

    Contains: every answer of the driver (NVML) to the exporter's calls; the files of sysfs and procfs that
    the exporter reads, processes' names among them; the NVIDIA driver's lines of the kernel log.

    Pseudonymized, consistently: serial numbers, UUIDs, host names, names of file servers, user names, IP
    addresses. Never included: command lines, environments, memory maps.

    Review it before sharing it: it is text.

    Exit code 0: recorded. 2: not recorded, since there is something in its place, it cannot be written there, or
    the options cannot be used.
    """
    prepare_target(target, replace=force)
    configure("error", config.log_format)
    with ExitStack() as stack:
        recording = record_host(live_host(config, stack).machine, config, seconds, local_masker())
    write_recording(recording, target)
    click.echo(f"{target}: {len(recording.answers)} answers of NVML, {len(recording.files)} of files")
    return 0


def record_host(machine: Machine, config: Config, seconds: float, masker: Masker) -> Recording:
    """Record a machine while the exporter's collectors run on it, for this long in real time."""
    with closing(Capture(machine, math.inf, _MOST_BYTES)) as capture:

        def note(_sampler: Sampler) -> bool:
            capture.ring.drain()
            return False

        # Events of devices are not recorded.
        recorded = replace(capture.machine, hotplug=False)
        sample_for(seconds, recorded, config, lambda done: f"recording, {done:.0f} of {seconds:.0f} s", note)
        return masked(capture.captured(), masker)
