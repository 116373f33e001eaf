r"""Parse messages of NVIDIA's kernel modules about failures of a GPU or the driver without an Xid.

The driver splits sentences over several lines, each prefixed with ``NVRM:``, at points that vary between branches. The
parsers here take the whole sentence with newlines, as in a record of ``/dev/kmsg``. Sources: nv.c, nv-pci.c, osapi.c,
kernel_gsp.c, linux_nvswitch.c and nvidia-peermem.c of the open kernel modules 515 to 595
(https://github.com/NVIDIA/open-gpu-kernel-modules); the wording of 340 to 510 is from bug reports.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from gpu_triage.driver.kernel.pci_bus import normalize_bus_id
from gpu_triage.read.host.kernel_messages import ProblemKind, cut

MARKERS: Final = ("NVRM:", "nvidia-nvswitch", "nvidia-nvlink", "nvidia-peermem")
"""Substrings; a line without any of them is not one of these messages."""

BEGINNINGS: Final = r"NVRM: |nvidia-nvswitch\d*: |nvidia-nvlink: |nvidia-peermem "
"""Regular expression for the start of each message, to locate it after the timestamp in a log line."""

SENTENCES: Final = (
    "NVRM: API mismatch:",
    "NVRM: The NVIDIA ",
    "NVRM: This PCI I/O region ",
)
"""Prefixes of messages that continue over several lines until a period."""


AT_PROBE: Final = frozenset(
    {
        ProblemKind.DRIVER_NOT_LOADED,
        ProblemKind.GPU_LOST_AT_PROBE,
        ProblemKind.GPU_PROBE_FAILED,
        ProblemKind.GPU_NOT_PROBED,
        ProblemKind.GPU_BOUND_ELSEWHERE,
        ProblemKind.GPU_UNSUPPORTED,
        ProblemKind.GPU_BAR,
    }
)
"""Logged while the driver is loading, before the message that it is loaded."""

UNTIL_LOADED: Final = AT_PROBE | {
    ProblemKind.DRIVER_MISMATCH,
    ProblemKind.GPU_INIT_FAILED,
    ProblemKind.GSP_INIT_FAILED,
    ProblemKind.GSP_TIMEOUT,
    ProblemKind.SWITCH_MISMATCH,
}
"""Resolved once the driver has been loaded again."""

LOADING_SECONDS: Final = 60.0
"""Maximum time to load the driver, from the first GPU probed to the message that it is loaded."""


class DriverMessage(NamedTuple):
    """One parsed message; "" for what it does not contain.

    The number is the driver's, which may differ from the GPU's index; the detail holds versions, a code, a count or
    another driver's name.
    """

    trouble: ProblemKind
    address: str = ""
    number: str = ""
    detail: str = ""

    @property
    def subject(self) -> str:
        """What the message is about, in a few words; "" if the message does not name it."""
        gpu = self.address or (f"GPU {self.number}" if self.number else "")
        return cut(gpu or self.detail)


_ADDRESS: Final = r"([0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)"
_VERSION: Final = r"([0-9]{1,4}(?:\.[0-9]{1,4}){1,3})"
_NUMBER: Final = r"(?:GPU(\d{1,3}) )?"

_IN_SLOT: Final = rf"{_ADDRESS}:? (?:\(PCI ID: .{{9}}\) )?installed in"

_MISMATCH: Final = re.compile(
    rf"NVRM: API mismatch: the client (?:'.{{0,64}}' \(pid \d{{1,10}}\) )?(?:has the )?version {_VERSION}"
    rf"(?:,? but this kernel module (?:has the )?version {_VERSION})?"
)
_OTHER_HALF: Final = re.compile(rf"NVRM: (?:but )?this kernel module (?:has the )?version {_VERSION}")
_OFF_THE_BUS: Final = re.compile(rf"NVRM: The NVIDIA GPU {_IN_SLOT} .{{0,40}}fallen off the bus")
_UNSUPPORTED: Final = re.compile(
    rf"NVRM: The NVIDIA (?:.{{0,60}} )?GPU (?:{_IN_SLOT}|installed in) this (?:vGPU host )?system "
    r"((?:is not supported by|is supported through|requires use of) .{3,80}?)(?:\. | because|\.?$)"
)
_BOUND: Final = re.compile(rf"NVRM: GPU {_ADDRESS} is already bound to (\S{{1,32}}?)\.?$")
_NOT_PROBED: Final = re.compile(r"NVRM: The NVIDIA probe routine was not called for (\d{1,4}) device")
_PROBE_FAILED: Final = re.compile(r"NVRM: The NVIDIA probe routine failed for (\d{1,4}) device")
_NOT_LOADED: Final = re.compile(
    r"NVRM: (?:No NVIDIA devices probed|None of the NVIDIA (?:graphics adapters|devices) were initialized)"
)
_INIT_FAILED: Final = re.compile(rf"NVRM: (?:GPU {_ADDRESS}: )?RmInitAdapter failed! \(([0-9a-fx:]{{1,40}})\)")
_GSP_INIT: Final = re.compile(
    rf"NVRM: {_NUMBER}.{{0,120}}"
    r"(?:Cannot initialize GSP|GSP-RM.{0,80}fail|fail.{0,80}GSP|kgspInitRm|kgspBoot)",
    re.IGNORECASE,
)
_GSP_TIMEOUT: Final = re.compile(
    rf"NVRM: {_NUMBER}(?:\w{{1,80}}: )?"
    r"(?:Heartbeat timed out|\*{4,80} GSP Timeout \*{4,80}|rpcRecvPoll timedout for fn)"
)
_BAR: Final = re.compile(
    r"NVRM: (?:This PCI I/O region assigned to your NVIDIA device is invalid: )?"
    rf"BAR(\d) is (\w{{1,12}}) @ 0x([0-9a-fA-F]{{1,16}}) \(PCI:{_ADDRESS}\)"
)
_INFOROM: Final = re.compile(
    rf"NVRM: (?:GPU {_ADDRESS}: |{_NUMBER}).{{0,100}}\binfo ?rom\b.{{0,60}}(?:corrupt|invalid)", re.IGNORECASE
)
_SWITCH_VERSION: Final = re.compile(
    r"nvidia-nv(?:switch\d{0,3}|link): (?:\w{1,60}: )?[Vv]ersion mismatch, "
    rf"kernel version {_VERSION} user version {_VERSION}"
)
_PEERMEM: Final = re.compile(r"nvidia-peermem \w{1,60}:\d{1,6} ERROR (.{1,200})")


def parse_driver_message(text: str) -> DriverMessage | None:
    """Parse a failure message of NVIDIA's modules; None for any other message, including Xids and SXids.

    >>> parse_driver_message("NVRM: GPU 0000:01:00.0 is already bound to NovaCore.").subject
    '0000:01:00.0'
    """
    if not text.startswith(("NVRM: ", "nvidia-")):
        return None
    sentence = " ".join(line.removeprefix("NVRM:").strip() for line in text.split("\n"))
    if text.startswith("NVRM: "):
        sentence = f"NVRM: {sentence}"
    for pattern, understand in _PATTERNS:
        match = pattern.match(sentence)
        if match is not None:
            return understand(match)
    return None


def _versions(client: str | None, module: str | None) -> str:
    parts = ((client, "client"), (module, "kernel module"))
    return ", ".join(f"{component} {version}" for version, component in parts if version)


def _address(text: str | None) -> str:
    return "" if text is None else normalize_bus_id(text if "." in text else f"{text}.0")


def _of_gpu(trouble: ProblemKind) -> Callable[[re.Match[str]], DriverMessage]:
    """Return a parser for patterns with an address group and an optional detail group."""
    return lambda match: DriverMessage(trouble, _address(match[1]), "", match[2] if match.re.groups > 1 else "")


def _of_number(trouble: ProblemKind) -> Callable[[re.Match[str]], DriverMessage]:
    return lambda match: DriverMessage(trouble, number=match[1] or "")


def _of_detail(trouble: ProblemKind) -> Callable[[re.Match[str]], DriverMessage]:
    return lambda match: DriverMessage(trouble, detail=match[1] if match.re.groups else "")


def _patterns() -> Iterator[tuple[re.Pattern[str], Callable[[re.Match[str]], DriverMessage]]]:
    yield _INIT_FAILED, _of_gpu(ProblemKind.GPU_INIT_FAILED)
    yield _MISMATCH, lambda match: DriverMessage(ProblemKind.DRIVER_MISMATCH, detail=_versions(match[1], match[2]))
    yield _OTHER_HALF, lambda match: DriverMessage(ProblemKind.DRIVER_MISMATCH, detail=_versions(None, match[1]))
    yield _OFF_THE_BUS, _of_gpu(ProblemKind.GPU_LOST_AT_PROBE)
    yield _UNSUPPORTED, _of_gpu(ProblemKind.GPU_UNSUPPORTED)
    yield _BOUND, _of_gpu(ProblemKind.GPU_BOUND_ELSEWHERE)
    yield _NOT_PROBED, _of_detail(ProblemKind.GPU_NOT_PROBED)
    yield _PROBE_FAILED, _of_detail(ProblemKind.GPU_PROBE_FAILED)
    yield _NOT_LOADED, _of_detail(ProblemKind.DRIVER_NOT_LOADED)
    yield (
        _BAR,
        lambda match: DriverMessage(
            ProblemKind.GPU_BAR, _address(match[4]), detail=f"BAR{match[1]} is {match[2]} at 0x{match[3]}"
        ),
    )
    yield _GSP_TIMEOUT, _of_number(ProblemKind.GSP_TIMEOUT)
    yield _GSP_INIT, _of_number(ProblemKind.GSP_INIT_FAILED)
    yield _INFOROM, lambda match: DriverMessage(ProblemKind.INFOROM_CORRUPTED, _address(match[1]), match[2] or "")
    yield (
        _SWITCH_VERSION,
        lambda match: DriverMessage(
            ProblemKind.SWITCH_MISMATCH, detail=f"kernel module {match[1]}, program {match[2]}"
        ),
    )
    yield _PEERMEM, _of_detail(ProblemKind.PEERMEM_ERROR)


_PATTERNS: Final = tuple(_patterns())
