"""Files that are made to take `gpu-triage check --from` long or much memory, without an end."""

import base64
import bz2
import gzip
import io
import lzma
import random
import tarfile
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, count, repeat

from tests.offline_files import XML, lspci, packed_bug_report, sick_bug_report, smi, smi_gpu

MIB = 1 << 20


def blocks() -> Iterator[bytes]:
    """What a large bug report consists of: base64, the log of X, the kernel's, hexadecimal dumps."""
    chance = random.Random(1)
    while True:
        yield b"".join(base64.b64encode(chance.randbytes(57)) + b"\n" for _ in range(2000))
        yield b"".join(b'[%8d.813] (II) NVIDIA(GPU-0):   Validating Mode "1920x1080_60"\n' % n for n in range(2000))
        yield b"".join(b'Mar 14 09:00:00 gpu-7 kernel: [%8d.123456] audit: op="open" pid=1\n' % n for n in range(2000))
        yield b"".join(b"%03x: de 10 30 23 06 05 10 00 a1 00 02 03 00 00 00 00\n" % (16 * n) for n in range(256))


def numbered(line: str) -> Callable[[], Iterator[bytes]]:
    """A flood of lines; in each, ``{n}`` and ``{x}`` are another number, decimal and as four hexadecimal digits."""
    return lambda: ((line.format(n=n, x=f"{n % 0xFFFF:04x}") + "\n").encode() for n in count())


def repeated(text: str) -> Callable[[], Iterator[bytes]]:
    return lambda: repeat((text * (1 + 60_000 // len(text))).encode())


MESSAGES = (
    "[ {n}.5] NVRM: Xid (PCI:{x}:41:00): {n}, pid=1, name=x, Ch 00000001",
    "[ {n}.5] NVRM: Xid (PCI:0000:41:00): 45, pid={n}, name=x, Ch {n} caused by previous Xid {n}",
    "Mar 14 09:50:00 gpu-7 kernel: [ {n}.5] nvidia-nvswitch0: SXid (PCI:{x}:c1:00.0): {n}, Fatal, Link 30",
    "[Sat Mar 14 09:50:00 2026] Out of memory: Killed process {n} (python{n}) total-vm:1kB",
    "INFO: task python{n}:{n} blocked for more than 122 seconds.",
    "nfs: server nas{n} not responding, still trying",
    "nvidia {x}:41:00.0: PCIe Bus Error: severity=Correctable, type=Data Link Layer, (Receiver ID)",
    "pcieport {x}:00:01.0: AER: Correctable error message received from {x}:41:00.0",
    "NVRM: GPU {x}:41:00.0: RmInitAdapter failed! (0x62:0x40:{n})",
    "NVRM: API mismatch: the client has the version {n}.1, but#012NVRM: this kernel module has the version {n}.2.",
    "NVRM: loading NVIDIA UNIX x86_64 Kernel Module  580.{n}.05  Wed Jan  1 00:00:00 UTC 2026",
    "mlx5_core 0000:5c:00.0 eth{n}: Link up\n[1.0] mlx5_core 0000:5c:00.0 eth{n}: Link down",
    "EDAC MC1: {n} CE memory read error on DIMM#{n} (channel:1 slot:0)",
    '{{"MESSAGE": "NVRM: Xid (PCI:0000:41:00): 31, {n}", "__REALTIME_TIMESTAMP": "{n}"}}',
    "NVRM: Xid GSP heartbeat infoROM fail {n}",
    "nvidia_{n}  1000 1\nEnabled persistence mode for GPU {x}:41:00.0.",
    "Device r/s %util\nsd{n} 1 1\nsd{n} 1 2\nIFACE rxkB/s txkB/s\neth{n} {n} 1\nPID S CMD\n{n} D a{n}",
    "[Rank {n}] Watchdog caught collective operation timeout: WorkNCCL(OpType=A) ran for {n} milliseconds",
    "n1:1:1 [0] NCCL INFO NET/IB : Using [0]mlx{n}:1/RoCE",
    "________________\n\ndmesg:\n\n[ {n}.000001] NVRM: Xid (PCI:0000:41:00): 31, {n}",
)

SHAPES: Mapping[str, Callable[[], Iterator[bytes]]] = {
    **{f"messages {place}": numbered(message) for place, message in enumerate(MESSAGES)},
    "NUL": repeated("\0"),
    "one line": repeated("no line ends here, ever "),
    "empty lines": repeated("\n"),
    "carriage returns": repeated("\r"),
    "escapes": repeated("\x1b[0mNVRM: \x1b[31m"),
    "brackets": repeated("[" * 999 + "NVRM: Xid (PCI:" + "0" * 999 + "\n"),
    "quotes": repeated("> " * 900 + "NVRM: GPU " + "a" * 900 + "\n"),
    "JSON that nests": repeated('{"MESSAGE":' + "[" * 30_000 + ' "NVRM: "\n'),
    "long JSON": repeated('{"MESSAGE": "NVRM: ' + "x" * 60_000 + '"}\n'),
    "GSP without an end": repeated("NVRM: " + "fail " * 80 + "\n"),
    "open tags": repeated("<nvidia_smi_log><gpu><a><b>"),
    "XML": repeated(XML.replace("\n", " ") + "\n"),
    "nvidia-smi": repeated(smi(*(smi_gpu(place, processes=["1 a"]) for place in range(8)))),
    "GPUs": lambda: chain([smi().encode()], (smi_gpu(n % 180, {"uuid": f"GPU-{n}"}).encode() for n in count())),
    "processes": lambda: chain(
        [smi(smi_gpu(processes=["1 a"])).encode()],
        (f"        Process ID : {n}\n            Type : C\n            Name : x{n}\n".encode() for n in count()),
    ),
    "lspci": lambda: (lspci(domain=f"{n:04x}:").encode() for n in count()),
    "devices": numbered("{x}:41:00.0 3D controller [0302]: NVIDIA Corporation GH100 [10de:2330] (rev a1)"),
    "lost": numbered("Unable to determine the device handle for GPU {x}:41:00.0: Unknown Error"),
}


def front(shape: Callable[[], Iterator[bytes]], size: int) -> bytes:
    """So many bytes of a shape."""
    data = bytearray()
    for block in shape():
        data += block
        if len(data) >= size:
            break
    return bytes(data[:size])


def _tar_of_many(size: int) -> bytes:
    written, line = io.BytesIO(), b"[ 1.000001] NVRM: Xid (PCI:0000:41:00): 31, x\n"
    with tarfile.open(fileobj=written, mode="w") as archive:
        for number in range(size // 1024):
            member = tarfile.TarInfo(f"dmesg-{number}")
            member.size = len(line)
            archive.addfile(member, io.BytesIO(line))
    return written.getvalue()


PACKED: Mapping[str, Callable[[int], bytes]] = {
    "members": lambda size: packed_bug_report(sick_bug_report()) * (size // (2 * MIB) + 1),
    "bomb of gzip": lambda size: gzip.compress(bytes(size), 9),
    "bomb of bzip2": lambda size: bz2.compress(bytes(size)),
    "bomb of xz": lambda size: lzma.compress(bytes(size)),
    "gzip in gzip": lambda size: gzip.compress(gzip.compress(front(blocks, size), 1), 1),
    "empty members": lambda size: gzip.compress(b"") * (size // 20),
    "many files": _tar_of_many,
}
"""Files that unpack to a size, or, where nothing is in them, have that size."""
