"""How fast `gpu-triage check --from` reads, and in how much memory: `python -m tests.bench.offline` prints both."""

from __future__ import annotations

import base64
import gzip
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

from tests.offline_files import sick_bug_report

MIB = 1 << 20
SIZE = 200 * MIB
PROGRAM = """
import resource, sys, time
from gpu_triage.cli import group
began = time.monotonic()
group.main(["check", "--from", sys.argv[1], "--format", "json"], standalone_mode=False)
seconds = time.monotonic() - began
used = resource.getrusage(resource.RUSAGE_SELF)
print(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024, file=sys.stderr)
"""


def blocks() -> Iterator[bytes]:
    """What a large bug report consists of: base64, the log of X, the kernel's, hexadecimal dumps."""
    chance = random.Random(1)
    while True:
        yield b"".join(base64.b64encode(chance.randbytes(57)) + b"\n" for _ in range(2000))
        yield b"".join(b'[%8d.813] (II) NVIDIA(GPU-0):   Validating Mode "1920x1080_60"\n' % n for n in range(2000))
        yield b"".join(b'Mar 14 09:00:00 gpu-7 kernel: [%8d.123456] audit: op="open" pid=1\n' % n for n in range(2000))
        yield b"".join(b"%03x: de 10 30 23 06 05 10 00 a1 00 02 03 00 00 00 00\n" % (16 * n) for n in range(256))


def main() -> None:
    """Write a bug report of 200 MiB, plain and packed, and read both."""
    with tempfile.TemporaryDirectory() as folder:
        plain, packed = Path(folder, "nvidia-bug-report.log"), Path(folder, "nvidia-bug-report.log.gz")
        with plain.open("wb") as file, gzip.open(packed, "wb", compresslevel=1) as archive:
            size = 0
            for block in chain([sick_bug_report().encode()], blocks()):
                file.write(block)
                archive.write(block)
                size += len(block)
                if size >= SIZE:
                    break
        for path in (plain, packed):
            done = subprocess.run(
                [sys.executable, "-c", PROGRAM, str(path)], check=True, capture_output=True, text=True
            )
            seconds, cpu, memory = map(float, done.stderr.split())
            sys.stdout.write(
                f"{path.name}: {size / MIB:.0f} MiB in {seconds:.1f} s ({cpu:.1f} s of CPU time, "
                f"{size / MIB / cpu:.0f} MiB/s), {memory:.0f} MiB of memory\n"
            )


if __name__ == "__main__":
    main()
