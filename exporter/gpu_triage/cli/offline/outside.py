"""Causes outside the GPU that programs print: containers and WSL without access, vGPU licenses, a pending MIG mode.

They do not take a GPU out of use. Their table is ``outside.toml``.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from gpu_triage.cli.offline.log_lines import log_time
from gpu_triage.documents import packaged_toml
from gpu_triage.driver.kernel.pci_bus import normalize_bus_id
from gpu_triage.judge.findings.table import Advice, advice_on

KIND: Final = "what programs say about access to GPUs"
MARKERS: Final = (
    *("NVML: ", "[[gpu", "nvidia-container", "nvidia-gridd", "MIG ", "nvidia.com/gpu", "XidCriticalError"),
    *("blocked by the operating system", "untime name: nvidia", "untime specified nvidia", 'untime for "nvidia"'),
)
"""Substrings; a line with none of them cannot be one of these messages."""
LICENSE: Final = "vgpu.unlicensed"
MIG: Final = "mig.pending"


_CAUSES: Final[list[dict[str, str]]] = packaged_toml(__package__, "outside.toml")["cause"]
_LICENSED: Final = re.compile(r"nvidia-gridd(?:\[\d+\])?: .*(?:acquired|renewed) successfully")
_LONGEST: Final = 200
_MOST: Final = 64


class Outside(NamedTuple):
    code: str
    bus_id: str  # of the GPU; "" if the message names none
    measured: str
    advice: Advice | None


@dataclass(slots=True)
class OutsideCauses:
    """The causes that one file names, each once, with its latest message."""

    _found: dict[tuple[int, str], tuple[float, Outside]] = field(default_factory=dict)
    _licensed_at: float = -1.0  # as `_moment`

    def note(self, line: str) -> bool:
        for place, cause in enumerate(_CAUSES):
            if cause["marker"] not in line or (found := re.search(cause["pattern"], line)) is None:
                continue
            bus_id = normalize_bus_id(found["gpu"]) if found.groups() else ""
            is_license = cause["code"] == LICENSE
            at = _moment(line) if is_license else 0.0
            is_over = is_license and at < self._licensed_at
            if not is_over and (len(self._found) < _MOST or (place, bus_id) in self._found):
                text = cause["text"].format(line[found.start() :].strip(" `*\"'|,")[:_LONGEST])
                advice = advice_on(cause["meaning"], cause["decision"]) if "meaning" in cause else None
                self._found[place, bus_id] = (at, Outside(cause["code"], bus_id, text, advice))
            return True
        if "successfully" in line and _LICENSED.search(line) is not None:
            # Logs may be newest first: a license ends only what failed before it.
            at = self._licensed_at = _moment(line)
            self._found = {key: e for key, e in self._found.items() if e[1].code != LICENSE or e[0] > at}
        return False

    def __iter__(self) -> Iterator[Outside]:
        return (outside for _, outside in self._found.values())


def _moment(line: str) -> float:
    time = log_time(line[:100])
    return time.wall or time.seconds or 0.0
