"""Files of jobs in a folder, and what the exporter makes of them."""

from collections.abc import Mapping
from pathlib import Path

from prometheus_client.samples import Sample

from gpu_triage.machine import Moment, RealClock, real_machine
from gpu_triage.read.host.textfile import TextFilesReader, TextFilesReading
from gpu_triage.read.metrics.contract import HostRound, PresentGpus


def read(
    directory: Path,
    *,
    reader: TextFilesReader | None = None,
    gpus: PresentGpus | None = None,
    later: float = 0.0,
    failures: list[str] | None = None,
) -> TextFilesReading:
    """What a round reads, `later` seconds from now; its failures are added to `failures`."""
    machine, now = real_machine(Path("/sys"), Path("/proc"), None), RealClock().now()
    at = Moment(now.monotonic + later, now.wall + later)
    host = HostRound(machine, at, [] if failures is None else failures, gpus or PresentGpus())
    return (reader or TextFilesReader(directory)).read(host)


def errors(reading: TextFilesReading) -> dict[str, str]:
    """Why each file is rejected; "" if it is not."""
    return {file.name: file.error or "" for file in reading.files}


def samples(reading: TextFilesReading) -> list[Sample]:
    return [sample for family in reading.families for sample in family.samples]


def write(directory: Path, files: Mapping[str, str]) -> None:
    """Files as jobs leave them; those in a sub-folder belong to it."""
    directory.mkdir(exist_ok=True)
    directory.chmod(0o755)
    for name, text in files.items():
        path = directory / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
