"""``gpu-triage record``: its arguments, its output and its exit codes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import click

from gpu_triage.collectors.registry import GPU_COLLECTORS, HOST_COLLECTORS
from gpu_triage.config import Config
from gpu_triage.machine import Machine
from gpu_triage.options.values import parse_duration
from gpu_triage.recording.bundle import Recording, write_recording
from gpu_triage.recording.recorder import Recorder, local_masker
from gpu_triage.sampler.runner import Runner
from gpu_triage.sampler.sampler import Sampler

MachineOpener = Callable[[Config, ExitStack, float], Machine]
"""Opens the machine of a configuration for as long as the stack; the number is a simulated host's time in seconds."""

_LONGEST_SECONDS = 600.0


def record_command(open_machine: MachineOpener) -> click.Command:
    """The command ``record``."""
    real = Config()

    @click.command("record")
    @click.argument("target", type=Path, metavar="DIR|FILE.tar.gz")
    @click.option("--watch", metavar="DURATION", default="10s", show_default=True, help="How long to watch the host.")
    @click.option("--simulate", metavar="SCENARIO", help="Record this simulated host instead.")
    @click.option("--path.sysfs", "path_sysfs", type=Path, default=real.path_sysfs, show_default=True)
    @click.option("--path.procfs", "path_procfs", type=Path, default=real.path_procfs, show_default=True)
    @click.option("--path.kmsg", "path_kmsg", type=Path, default=real.path_kmsg, show_default=True)
    def record(target: Path, watch: str, **where: Any) -> int:
        """Record this host for a bug report, or as a fixture of a test: gpu-triage serve --replay plays it.

        In it are: every answer of the driver (NVML) to what the exporter asks; the files of sysfs and procfs that
        the exporter reads, processes' names among them; the NVIDIA driver's lines of the kernel log.

        Not in it, but replaced by other names, the same one each time: serial numbers, UUIDs, names of the host, of
        file servers and of the host's people, IP addresses. Never in it: command lines, environments, memory maps.

        Look through it before you give it away: it is text.
        """
        try:
            seconds = parse_duration(watch)
        except ValueError as error:
            raise click.UsageError(f"--watch: {error}") from error
        if not 1 <= seconds <= _LONGEST_SECONDS:
            raise click.UsageError(f"--watch: {watch} is not from 1s to {_LONGEST_SECONDS:.0f}s")
        with ExitStack() as stack:
            config = Config(log_level="error", **where)
            recording = watch_host(open_machine(config, stack, 0.0), config, seconds)
        write_recording(recording, target)
        click.echo(f"{target}: {len(recording.answers)} answers of NVML, {len(recording.files)} states of files")
        return 0

    return record


def watch_host(machine: Machine, config: Config, seconds: float) -> Recording:
    """A recording of a machine, the exporter's collectors running on it for so long, real time."""
    recorder = Recorder(machine, local_masker())
    runner = Runner(machine.clock, config)
    sampler = Sampler(recorder.machine, config, runner.lane, GPU_COLLECTORS, HOST_COLLECTORS)
    ended = threading.Event()
    runner.start(sampler, recorder.snapshot, lambda _cause: ended.set())
    ended.wait(seconds)
    runner.stop()
    return recorder.finish()
