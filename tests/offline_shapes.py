"""Files that are made to take `gpu-triage check --from` long or much memory, without an end."""

import io
import tarfile
from collections.abc import Callable, Iterator, Mapping
from itertools import chain, count, repeat
from pathlib import Path

import yaml
from tests.offline_files import XML, lspci, packed_bug_report, sick_bug_report, smi, smi_gpu


def numbered(line: str) -> Callable[[], Iterator[bytes]]:
    """A flood of lines; in each, ``{n}`` and ``{x}`` are another number, decimal and as four hexadecimal digits."""
    return lambda: ((line.format(n=n, x=f"{n % 0xFFFF:04x}") + "\n").encode() for n in count())


def repeated(text: str) -> Callable[[], Iterator[bytes]]:
    return lambda: repeat((text * (1 + 60_000 // len(text))).encode())


MESSAGES = yaml.safe_load(Path(__file__).with_name("offline_floods.yml").read_bytes())

SHAPES: Mapping[str, Callable[[], Iterator[bytes]]] = {
    **{f"messages {place}": numbered(message) for place, message in enumerate(MESSAGES)},
    "one line": repeated("no line ends here, ever "),
    "empty lines": repeated("\n"),
    "escapes": repeated("\x1b[0mNVRM: \x1b[31m"),
    "quotes": repeated("> " * 900 + "NVRM: GPU " + "a" * 900 + "\n"),
    "JSON that nests": repeated('{"MESSAGE":' + "[" * 30_000 + ' "NVRM: "\n'),
    "open tags": repeated("<nvidia_smi_log><gpu><a><b>"),
    "XML": repeated(XML.replace("\n", " ") + "\n"),
    "nvidia-smi": repeated(smi(*(smi_gpu(place, processes=["1 a"]) for place in range(8)))),
    "GPUs": lambda: chain([smi().encode()], (smi_gpu(n % 180, {"uuid": f"GPU-{n}"}).encode() for n in count())),
    "processes": lambda: chain(
        [smi(smi_gpu(processes=["1 a"])).encode()],
        (f"        Process ID : {n}\n            Type : C\n            Name : x{n}\n".encode() for n in count()),
    ),
    "lspci": lambda: (lspci(domain=f"{n:04x}:").encode() for n in count()),
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
    "members": lambda size: packed_bug_report(sick_bug_report()) * (size >> 16),
    "many files": _tar_of_many,
}
"""Files that take as long to read as a size asks for, in 64 KiB or more."""
