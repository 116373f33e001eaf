"""Causes outside the GPU that programs print: containers and WSL without access, vGPU licenses, a pending MIG mode.

They are no reason to take a GPU out of use. Sources of the wordings: nvml.h, nvidia-smi,
libnvidia-container, Docker, containerd, and the log of nvidia-gridd.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from gpu_triage.cli.offline.log_lines import log_time
from gpu_triage.driver.kernel.pci_bus import normalize_bus_id
from gpu_triage.judge.findings.check import Advice, advice_on

KIND: Final = "what programs say about access to GPUs"

MARKERS: Final = (
    *("NVML: ", "[[gpu", "nvidia-container", "nvidia-gridd", "MIG mode", "MIG Mode", "nvidia.com/gpu"),
    *("blocked by the operating system", "untime name: nvidia", "untime specified nvidia", 'untime for "nvidia"'),
)
"""Substrings; a line without any of them is none of these messages."""

_ACCESS: Final = "driver.no_access"
LICENSE: Final = "vgpu.unlicensed"
MIG: Final = "mig.pending"


class _Cause(NamedTuple):
    marker: str  # a substring of each of its messages
    pattern: re.Pattern[str]  # its group `gpu`, if any, is the address of the GPU
    code: str  # of the finding
    text: str  # what was found, with ``{}`` for the message
    advice: Advice | None = None  # None: that of the code


_CAUSES: Final = (
    _Cause(
        "blocked by the operating system",
        re.compile(r"GPU access blocked by the operating system"),
        _ACCESS,
        "Windows blocks the GPU, as only WSL says: {}",
        advice_on(
            "In WSL, the GPU belongs to Windows, whose driver does not let this Linux, container or sandbox use it. "
            "Nothing is known against the GPU.",
            "Run nvidia-smi on Windows, and update the NVIDIA driver there; then wsl --update, wsl --shutdown. Have "
            "no Linux driver inside WSL; give a container the GPU (--gpus all, Docker Desktop's GPU support).",
        ),
    ),
    _Cause(
        "Unknown Error",
        re.compile(r"Failed to initialize NVML: Unknown Error"),
        _ACCESS,
        "most likely a container that has lost its devices: {}",
        advice_on(
            "A container loses its GPUs' devices when systemd reloads its units (systemctl daemon-reload, an update). "
            "On the host, the GPUs go on working.",
            "Run nvidia-smi on the host. If it works there, restart the container, and give it the devices by CDI or "
            "--device, or use the cgroupfs driver; if it fails there too, read the kernel log.",
        ),
    ),
    _Cause(
        "Insufficient Permissions",
        re.compile(r"Failed to initialize NVML: Insufficient Permissions"),
        _ACCESS,
        "the user or container may not open the devices: {}",
        advice_on(
            "Who asked may not open /dev/nvidia*. Nothing is known against the GPUs.",
            "Run nvidia-smi as root on the host; if it works there, check the modes of /dev/nvidia*, the user's "
            "groups, and the container's devices.",
        ),
    ),
    _Cause(
        "",
        re.compile(
            r"could not select device driver .{0,12} with capabilities: \[\[gpu"
            r"|[Uu]nknown (?:or invalid )?runtime (?:name:|specified) nvidia"
            r'|no runtime for "nvidia" is configured'
            r"|Error response from daemon: .{1,400}nvidia-container-.{1,20}: executable file not found"
            r"|Failed to initialize NVML: (?:could not load NVML|ERROR_LIBRARY)"
            r"|nvidia-container-cli: (?!.*(?:driver not loaded|version mismatch)).{3}"
        ),
        _ACCESS,
        "the container runtime gave the container no GPU: {}",
        advice_on(
            "The container runtime could not hand the GPUs to a container. Nothing is known against the GPUs.",
            "Run nvidia-smi on the host; if it works there, install or repair the NVIDIA Container Toolkit "
            "(nvidia-ctk runtime configure), and restart the runtime.",
        ),
    ),
    _Cause(
        "nvidia.com/gpu",
        re.compile(r"\bInsufficient nvidia\.com/gpu"),
        _ACCESS,
        "Kubernetes has no free GPU for a pod: {}",
        advice_on(
            "No node offers as many GPUs as the pod asks for: they are in use, or the device plugin does not run.",
            "Compare Capacity, Allocatable and Allocated of nvidia.com/gpu (kubectl describe node), and read the log "
            "of the device plugin.",
        ),
    ),
    _Cause(
        "nvidia-gridd",
        re.compile(
            r"(?i)nvidia-gridd(?:\[\d+\])?: (?!.*(?:success|acquired|no such file))"
            r"(?=.*(?:licen[cs]|token|client|feature"
            r" type)).*(?:fail|error|unable|not found|expired|invalid|mismatch|unlicensed|restricted)"
        ),
        LICENSE,
        "{}",
    ),
    _Cause(
        "MIG ",
        re.compile(
            r"(?:MIG mode is in pending (?:en|dis)able state|Unable to (?:en|dis)able MIG [Mm]ode) for GPU "
            r"(?P<gpu>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])"
        ),
        MIG,
        "{}",
    ),
)
_LICENSED: Final = re.compile(r"nvidia-gridd(?:\[\d+\])?: .*(?:acquired|renewed) successfully")
_LONGEST: Final = 200
_MOST: Final = 64


class Outside(NamedTuple):
    """One cause outside the GPU."""

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
        """Note the cause that a line names; return whether it names one."""
        for place, cause in enumerate(_CAUSES):
            found = cause.pattern.search(line) if cause.marker in line else None
            if found is None:
                continue
            bus_id = normalize_bus_id(found["gpu"]) if cause.pattern.groups else ""
            at = _moment(line) if cause.code == LICENSE else 0.0
            is_over = cause.code == LICENSE and at < self._licensed_at
            if not is_over and (len(self._found) < _MOST or (place, bus_id) in self._found):
                text = line[found.start() :].strip(" `*\"'|,")[:_LONGEST]
                outside = Outside(cause.code, bus_id, cause.text.format(text), cause.advice)
                self._found[place, bus_id] = (at, outside)
            return True
        if "successfully" in line and _LICENSED.search(line) is not None:
            # Logs may be newest first: a license ends only what failed before it.
            at = self._licensed_at = _moment(line)
            of_others = {key: each for key, each in self._found.items() if each[1].code != LICENSE or each[0] > at}
            self._found = of_others
        return False

    def __iter__(self) -> Iterator[Outside]:
        return (outside for _, outside in self._found.values())

    def __bool__(self) -> bool:
        return bool(self._found)


def _moment(line: str) -> float:
    time = log_time(line[:100])
    return time.wall or time.seconds or 0.0
