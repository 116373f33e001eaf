"""Contents of the simulated /proc/1/mountstats."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from gpu_triage_simulator.scenario import NfsMount

_LOCAL_MOUNTS: Final = (
    "device proc mounted on /proc with fstype proc\n"
    "device /dev/nvme0n1p2 mounted on / with fstype ext4\n"
    "device tmpfs mounted on /run with fstype tmpfs\n"
)
_HEAD: Final = """\
\topts:\trw,vers=4.2,rsize=1048576,wsize=1048576,namlen=255,acregmin=3,acregmax=60,hard,proto=tcp,nconnect=8,sec=sys
\tage:\t864000
\timpl_id:\tname='',domain='',date='0,0'
\tcaps:\tcaps=0xfffbc0bf,wtmult=512,dtsize=1048576,bsize=0,namlen=255
\tnfsv4:\tbm0=0xfdffbfff,bm1=0x40f9be3e,bm2=0x60803,acl=0x3,sessions,pnfs=not configured
\tsec:\tflavor=1,pseudoflavor=1
\tevents:\t9001 812345 120 450 301 77 920001 81000 4 0 0 512 3 0 88 512 0 77 0 0 81000 0 0 0 0 0 0
"""
_TRANSPORT: Final = """\
\tRPC iostats version: 1.1  p/v: 100003/4 (nfs)
\txprt:\ttcp 832 0 2 0 0 910233 910233 0 1820466 0 64 0 0
\tper-op statistics
"""


def mountstats(mounts: Sequence[NfsMount], counters: Mapping[str, float]) -> str:
    """The file: local file systems, which have no statistics, and NFS mounts, which do."""
    return _LOCAL_MOUNTS + "".join(_section(mount, counters) for mount in mounts)


def _section(mounted: NfsMount, counters: Mapping[str, float]) -> str:
    def count(what: str, factor: float = 1.0) -> int:
        return int(counters[f"nfs.{mounted.mount}.{what}"] * factor)

    read, written = count("read_bytes"), count("write_bytes")
    pages = f"{read // 4096} {written // 4096}"
    lines = [
        _operation("NULL", 1, 44, 24, 0),
        _operation(
            "READ",
            count("reads"),
            count("reads") * 224,
            read,
            count("read_seconds", 1000),
            resent=count("retransmissions"),
            late=count("major_timeouts"),
        ),
        _operation("WRITE", count("writes"), written, count("writes") * 176, count("write_seconds", 1000)),
        _operation("COMMIT", 0, 0, 0, 0),
        _operation("OPEN", 0, 0, 0, 0),
        _operation("GETATTR", count("getattrs"), 0, count("getattrs") * 240, count("getattr_seconds", 1000)),
    ]
    return (
        f"device {_escaped(mounted.export)} mounted on {_escaped(mounted.mount)} with fstype nfs4 statvers=1.1\n"
        f"{_HEAD}\tbytes:\t{read} {written} 0 0 {read} {written} {pages}\n{_TRANSPORT}{''.join(lines)}\n"
    )


def _operation(
    name: str, requests: int, sent: int, received: int, milliseconds: int, *, resent: int = 0, late: int = 0
) -> str:
    counts = f"{requests} {requests + resent} {late} {sent} {received}"
    return f"\t{name:>12}: {counts} 0 {milliseconds} {milliseconds} 0\n"


def _escaped(path: str) -> str:
    return "".join(f"\\{ord(character):03o}" if character in " \t\n\\" else character for character in path)
