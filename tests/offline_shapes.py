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
from pathlib import Path

import yaml
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


MESSAGES = yaml.safe_load(Path(__file__).with_name("offline_floods.yml").read_bytes())

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
