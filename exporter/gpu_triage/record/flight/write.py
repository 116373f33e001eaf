"""Writes a flight recording; run with ``python -m`` by `WritingProcess`."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
from pathlib import Path
from typing import IO, Any, Final

from gpu_triage.errors import FlightRecorderError, LockTaken, RecordingError
from gpu_triage.machine import Moment
from gpu_triage.record.bundle import write_recording
from gpu_triage.record.calls import function_of
from gpu_triage.record.flight.directory import (
    clean_up,
    failure,
    lock_of,
    partial_folder,
    prune,
    recorded_before,
    refuse_unusable,
)
from gpu_triage.record.flight.order import AGAIN_SECONDS, WRITING_SECONDS, FlightRecording
from gpu_triage.record.flight.ring import RingBlock, RingContent, unrolled
from gpu_triage.record.masking import Masker
from gpu_triage.record.recorder import SERIAL, kernel_records, local_masker, masked_outs, versions_here
from gpu_triage.record.recording import FileState, NvmlAnswer, Recording

_NICENESS: Final = 10


def write_here(directory: Path, recording: FlightRecording, masker: Masker) -> str:
    """Write a recording in this process, as RecordingWriter does."""
    refuse_unusable(directory)
    lock = lock_of(directory)
    try:
        # Another exporter, or a leftover process of a previous one, may be writing the same recording.
        lock.acquire(wait=True)
        before = recorded_before(directory, recording.name, AGAIN_SECONDS)
        if before is not None:
            return before
        clean_up(directory)
        _write(directory, _masked(recording, masker), recording.name)
        prune(directory)
    except RecordingError as error:
        cause = error.__cause__
        if isinstance(cause, OSError):
            raise failure(directory, cause) from error
        raise FlightRecorderError("io_error", str(error)) from error
    except LockTaken as error:
        raise FlightRecorderError("in_use", f"{directory}: {error}") from error
    except OSError as error:
        raise failure(directory, error) from error
    finally:
        lock.release()
    return recording.name


def _write(directory: Path, recording: Recording, name: str) -> None:
    folder = partial_folder(directory)
    try:
        partial = folder / name
        write_recording(recording, partial)
        # Sync to disk, as the host may be about to go down.
        _sync(partial)
        partial.rename(directory / name)
        _sync(directory)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _masked(recording: FlightRecording, masker: Masker) -> Recording:
    answers: list[NvmlAnswer] = []
    files: list[FileState] = []
    serials: set[str] = set()
    keys: dict[str, str] = {}
    for each in unrolled(recording.content):
        if isinstance(each, FileState):
            files.append(each._replace(text=masker.text(each.text)))
            continue
        outs = masked_outs(masker, each.key, each.outs, recording.private.get(each.key, ()))
        if function_of(each.key) == SERIAL and each.outs and each.outs[0]:
            serials.add(each.outs[0].partition(b"\0")[0].decode("ascii", "replace"))
        key = keys.setdefault(each.key, masker.data(each.key.encode()).decode())
        answers.append(NvmlAnswer(each.seconds, key, each.code, outs))
    verdict = recording.verdict
    for serial in serials - {""}:
        verdict = verdict.replace(serial, masker.digits(serial.encode()).decode())
    return Recording(
        versions=versions_here(),
        monotonic=recording.began.monotonic,
        wall=recording.began.wall,
        seconds=recording.seconds,
        missing=recording.missing,
        answers=tuple(answers),
        files=tuple(sorted(files, key=lambda state: state.seconds)),
        kmsg=None if recording.kmsg is None else kernel_records(recording.kmsg, masker),
        verdict=masker.text(verdict),
    )


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _taken_over(source: IO[bytes]) -> tuple[Path, FlightRecording]:
    about: dict[str, Any] = json.loads(source.readline())
    blocks = tuple(RingBlock(began, source.read(size)) for began, size in about["blocks"])
    if [len(block.content) for block in blocks] != [size for _, size in about["blocks"]]:
        raise FlightRecorderError("io_error", "the exporter ended before it had handed over all data")
    recording = FlightRecording(
        name=about["name"],
        began=Moment(about["began"], about["wall"]),
        seconds=about["seconds"],
        content=RingContent(tuple(about["keys"]), blocks),
        private={key: tuple(tuple(map(tuple, spans)) for spans in places) for key, places in about["private"].items()},
        missing=tuple(about["missing"]),
        kmsg=None if about["kmsg"] is None else Path(about["kmsg"]),
        verdict=about["verdict"],
    )
    return Path(about["directory"]), recording


def main() -> None:
    """Write the recording on standard input, and print the result on standard output."""
    # If the exporter dies, nothing else would end this process, so it sets its own timeout. SIGTERM is ignored so that
    # the recording gets finished: a faulty host is often rebooted at once.
    signal.alarm(round(WRITING_SECONDS))
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    os.nice(_NICENESS)
    try:
        directory, recording = _taken_over(sys.stdin.buffer)
        answer = {"file": write_here(directory, recording, local_masker())}
    except FlightRecorderError as failed:
        answer = {"error": failed.reason, "detail": failed.detail}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
