"""``/proc/net/snmp``, as the kernel writes it."""

from collections.abc import Mapping
from typing import Final

from tests.states.play import Files

_NAMES: Final = (
    "RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens PassiveOpens AttemptFails EstabResets CurrEstab InSegs OutSegs "
    "RetransSegs InErrs OutRsts InCsumErrors"
)


def tcp(lost: float, segments_per_second: float = 50_000) -> Files:
    """The file of a host that sends so many segments, and from the onset on loses a share of them."""

    def files(since: float) -> Mapping[str, str]:
        sent = 1_000_000_000 + int(segments_per_second * (since + 10_000))
        again = 100_000 + int(max(0.0, since) * segments_per_second * lost)
        values = f"1 200 120000 -1 81243 5120 311 901 240 {sent} {sent} {again} 0 412 0"
        snmp = f"Tcp: {_NAMES}\nTcp: {values}\n"
        return {"proc/net/snmp": snmp, "proc/1/net/snmp": snmp}

    return files
