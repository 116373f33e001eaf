"""Every Xid that NVIDIA documents: its meaning, urgency, and recommended action.

This is the only list of Xid codes: the rules, `gpu-triage check`, the runbooks and the documentation are generated from
it or tested against it. Sources: NVIDIA's Xid catalog
(https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html) and, for codes that only Volta and older boards
report, the previous listing (https://docs.nvidia.com/deploy/xid-errors/). A code that is not here is new, or listed by
NVIDIA as unused: it gets a ticket, because a human has to look it up.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final


class XidKind(Enum):
    """Urgency of an Xid."""

    PAGE = "page"
    """The GPU must stop taking work: page the on-call."""

    TICKET = "ticket"
    """Needs attention during working hours."""

    APPLICATION = "application"
    """Caused by a program. Only concerns the job's owner, unless it keeps happening."""

    INFORMATION = "information"
    """Context for other errors, or harmless."""


@dataclass(frozen=True, slots=True)
class XidCode:
    """One Xid code.

    Attributes:
        meaning: completes "The driver reported Xid N: …"; lower case, no final period.
        remedy: what to do now, as a sentence in which ``{drain}`` and ``{Drain}`` are verbs (see `with_verb`).
        fatal_in_text: whether the kernel message contains Fatal or Nonfatal after the code. Nonfatal ones are tickets.
        nvlink: whether it concerns an NVLink, so that links and fabric fail with it.
        common: whether its counter starts at 0 on every GPU, so that increase() includes the first occurrence.
        since: which GPUs report it, if not all; "" otherwise.
    """

    code: int
    kind: XidKind
    meaning: str
    remedy: str
    fatal_in_text: bool = False
    nvlink: bool = False
    common: bool = False
    since: str = ""

    @property
    def action(self) -> str:
        """The remedy in the words of a cluster."""
        return with_verb(self.remedy)


def with_verb(text: str, verb: str = "drain") -> str:
    """Return advice with this verb for taking a GPU or host out of service: where no scheduler is, none is drained."""
    return text.replace("{drain}", verb).replace("{Drain}", verb.capitalize())


DOUBLE_BIT_ERROR: Final = 48
CONTAINED_ERROR: Final = 94
"""Reported right after a double-bit error that only killed the affected job."""

_RESET: Final = "{Drain} the GPU, then reset it; plan to replace the board if the error comes back."
_RESET_GSP: Final = "{Drain} the GPU, then reset it; reboot the host if the reset fails."
_RESET_LINK: Final = "{Drain} the GPU, then reset it; check its NVLink path if the error comes back."
_RESET_LATER: Final = "Reset the GPU when its jobs are done; plan to replace the board if the error comes back."
_RESTART_JOB: Final = "Restart the job that failed; reset the GPU if other jobs fail on it in the same way."
_READ_JOB_LOG: Final = "Read the job's log; suspect the GPU only if other jobs fail on it in the same way."
_NOTHING: Final = "Do nothing unless an alert or another Xid points to this GPU."
_VOLTA: Final = "Volta and older"

_PAGE: Final = (
    XidCode(46, XidKind.PAGE, "the GPU stopped processing", _RESET),
    XidCode(DOUBLE_BIT_ERROR, XidKind.PAGE, "the GPU memory had an uncorrectable (double-bit) ECC error", _RESET),
    XidCode(62, XidKind.PAGE, "the GPU's internal microcontroller halted", _RESET),
    XidCode(
        64,
        XidKind.PAGE,
        "a bad memory row or page could not be replaced by a spare one",
        "{Drain} the GPU, then reset it, and plan to replace the board.",
    ),
    XidCode(
        74,
        XidKind.PAGE,
        "an NVLink had an error that stops its traffic",
        "{Drain} the GPU, then reset it; check its NVLink bridge or NVSwitch if the error comes back.",
        nvlink=True,
    ),
    XidCode(
        79,
        XidKind.PAGE,
        "the GPU fell off the bus (power, PCIe signal, heat or a dying board)",
        "{Drain} the host and power-cycle it; check the GPU's seating, cables and power if it is lost again.",
    ),
    XidCode(
        95,
        XidKind.PAGE,
        "a memory error was not contained, so every job on the GPU may compute wrong results",
        "Stop every job on the GPU, then reset it.",
    ),
    XidCode(109, XidKind.PAGE, "switching between contexts took too long", _RESET),
    XidCode(110, XidKind.PAGE, "the GPU reported a security fault", _RESET),
    XidCode(119, XidKind.PAGE, "the GPU's system processor (GSP) did not answer in time", _RESET_GSP),
    XidCode(120, XidKind.PAGE, "the GPU's system processor (GSP) failed", _RESET_GSP),
    XidCode(136, XidKind.PAGE, "an NVLink could not be trained", _RESET_LINK, nvlink=True, since="Hopper and newer"),
    XidCode(140, XidKind.PAGE, "the GPU had an ECC error that it could not recover from", _RESET),
    XidCode(143, XidKind.PAGE, "the GPU could not be initialized", _RESET_GSP),
    *(
        XidCode(
            code,
            XidKind.PAGE,
            f"an NVLink had an error in its {unit} unit",
            _RESET_LINK,
            fatal_in_text=True,
            nvlink=True,
            since="Blackwell and newer (NVLink 5)",
        )
        for code, unit in enumerate(("SAW", "RLW", "TLW", "TREX", "NVLPW", "NETIR", "MSE"), start=144)
    ),
    XidCode(158, XidKind.PAGE, "the GPU had a fatal timeout", _RESET),
    XidCode(
        167,
        XidKind.PAGE,
        "PCIe had a fatal timeout",
        "{Drain} the host and power-cycle it; check the slot, riser and power if the error comes back.",
    ),
)

_TICKET: Final = (
    *(
        XidCode(code, XidKind.TICKET, meaning, _RESET_LATER, since=_VOLTA)
        for code, meaning in (
            (18, "the GPU may not access host memory, because bus mastering is off"),
            (24, "a semaphore of the GPU timed out"),
            (26, "the GPU memory did not answer in time"),
            (30, "the GPU could not access a semaphore"),
            (33, "the GPU's internal microcontroller had an error"),
            (57, "the memory interface of the GPU could not be programmed"),
            (58, "the memory interface of the GPU is unstable"),
            (59, "the GPU's internal microcontroller had an error"),
        )
    ),
    XidCode(38, XidKind.TICKET, "the firmware that switches contexts did not answer in time", _RESTART_JOB),
    XidCode(44, XidKind.TICKET, "the graphics engine failed while switching contexts", _RESTART_JOB),
    XidCode(
        54,
        XidKind.TICKET,
        "the auxiliary power cable of the GPU is not connected",
        "{Drain} the host, power it off and connect the GPU's power cable.",
    ),
    XidCode(61, XidKind.TICKET, "the GPU's internal microcontroller stopped at a breakpoint", _RESET_LATER),
    XidCode(
        63,
        XidKind.TICKET,
        "a bad memory row or page is marked for replacement by a spare one",
        "Reset the GPU when its jobs are done, so that the spare memory is used.",
    ),
    XidCode(78, XidKind.TICKET, "a vGPU could not be started", "Update the vGPU software of host and guest to match."),
    XidCode(
        92,
        XidKind.TICKET,
        "ECC corrects single-bit memory errors at a high rate",
        "Watch the count of corrected errors, and plan to replace the board if it keeps rising.",
    ),
    XidCode(
        CONTAINED_ERROR,
        XidKind.TICKET,
        "a memory error was contained, and only the affected job died",
        "Restart the job that died, and reset the GPU when its other jobs are done.",
    ),
    XidCode(108, XidKind.TICKET, "an NVLink peer could not translate an address", _RESTART_JOB, nvlink=True),
    XidCode(
        121,
        XidKind.TICKET,
        "the link between CPU and GPU (C2C) had a corrected error",
        "Watch for more of them, and reset the GPU when its jobs are done.",
        since="Grace systems",
    ),
    *(
        XidCode(
            code,
            XidKind.TICKET,
            f"the GPU could not {verb} the flash memory on its board",
            "Reset the GPU when its jobs are done; plan to replace the board if the error comes back.",
        )
        for code, verb in ((122, "read"), (123, "write"), (124, "erase"))
    ),
    XidCode(125, XidKind.TICKET, "the data that the board keeps about itself (InfoROM) is damaged", _RESET_LATER),
    XidCode(
        137,
        XidKind.TICKET,
        "an access over NVLink was refused, mostly because of an error on the GPU at the other end",
        "Restart the job, and look for an Xid of another GPU at the same time: that GPU is the cause.",
        nvlink=True,
        since="Hopper and newer",
    ),
    XidCode(
        151,
        XidKind.TICKET,
        "the encryption keys of confidential computing could not be renewed",
        "Restart the virtual machine that uses the GPU.",
        since="Hopper and newer",
    ),
    XidCode(
        154,
        XidKind.TICKET,
        "the driver asks for another recovery action than before",
        "{Drain} the GPU and do what the driver asks for (nvidia-smi -q, GPU Recovery Action).",
    ),
    XidCode(
        155,
        XidKind.TICKET,
        "the driver took an NVLink out of use",
        "Reset the GPU when its jobs are done; check its NVLink path if the error comes back.",
        nvlink=True,
        since="Blackwell and newer (NVLink 5)",
    ),
    XidCode(156, XidKind.TICKET, "the GPU took a faulty part of itself out of use", _RESET_LATER),
    XidCode(
        157,
        XidKind.TICKET,
        "the GPU could not take a faulty part of itself out of use",
        "{Drain} the GPU and plan to replace the board.",
    ),
    XidCode(
        159,
        XidKind.TICKET,
        "the bus between CPU and GPU reported an error that carries no data",
        _RESTART_JOB,
        since="Grace systems",
    ),
    XidCode(161, XidKind.TICKET, "a channel of the GPU could not be taken out of use", _RESET_LATER),
    *(
        XidCode(
            code,
            XidKind.TICKET,
            f"the board's power smoothing {state}",
            "Ask the vendor whether to replace the board; until then, expect larger swings of its power draw.",
            since="Blackwell and newer",
        )
        for code, state in (
            (163, "was switched off"),
            (164, "is close to the end of its lifetime"),
            (165, "has reached the end of its lifetime"),
        )
    ),
    *(
        XidCode(
            code,
            XidKind.TICKET,
            meaning,
            "Stop the job that uses confidential computing, then reset the GPU.",
            nvlink=True,
            since="Blackwell and newer",
        )
        for code, meaning in (
            (166, "an NVLink carried traffic before its encryption was set up"),
            (170, "an NVLink had an error in confidential computing mode"),
        )
    ),
    XidCode(168, XidKind.TICKET, "the GPU has less memory than before, because some of it is faulty", _RESET_LATER),
    XidCode(169, XidKind.TICKET, "the GPU's security microcontroller halted", _RESET_LATER),
    *(
        XidCode(code, XidKind.TICKET, "a copy engine had an error, and the job that used it died", _RESTART_JOB)
        for code in (39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136))
    ),
)

_APPLICATION: Final = (
    XidCode(8, XidKind.APPLICATION, "the GPU stopped working for a job that took too long", _READ_JOB_LOG),
    XidCode(13, XidKind.APPLICATION, "a kernel caused an exception on the GPU", _READ_JOB_LOG, common=True),
    XidCode(31, XidKind.APPLICATION, "a job accessed an invalid memory address", _READ_JOB_LOG, common=True),
    XidCode(32, XidKind.APPLICATION, "a job sent an invalid command stream", _READ_JOB_LOG, common=True),
    XidCode(43, XidKind.APPLICATION, "a job failed, and the GPU stopped processing for it", _READ_JOB_LOG, common=True),
    XidCode(
        45,
        XidKind.APPLICATION,
        "a job was removed from the GPU, because it was killed or because of an error before",
        "Look for another Xid just before this one: that is the cause.",
        common=True,
    ),
    XidCode(69, XidKind.APPLICATION, "a job used the graphics engine in an invalid way", _READ_JOB_LOG, common=True),
    *(
        XidCode(code, XidKind.APPLICATION, "a job sent an invalid command stream", _READ_JOB_LOG, since=_VOLTA)
        for code in (1, 2, 3, 4, 5, 6, 7, 9, 12, 20, 21)
    ),
    *(
        XidCode(code, XidKind.APPLICATION, "a job sent an invalid command stream", _READ_JOB_LOG)
        for code in (11, 25, 80)
    ),
    *(
        XidCode(code, XidKind.APPLICATION, f"a job caused an error in {engine} engine", _READ_JOB_LOG, since=since)
        for codes, engine, since in (
            ((22, 27, 28, 29, 34, 35, 36, 42), "a video", _VOLTA),
            ((60, 65), "a video", ""),
            ((47, 73, 142), "a video encoding", ""),
            ((83, 84, 88, 89, 96, 97, 98), "a video decoding", ""),
            ((82, *range(99, 106)), "a JPEG", ""),
            ((86, 139), "an optical flow", ""),
            ((138, 152, 153), "a deep learning (DLA)", "Jetson"),
        )
        for code in codes
    ),
    XidCode(68, XidKind.APPLICATION, "a job caused an error in a video decoding engine", _READ_JOB_LOG, common=True),
    XidCode(141, XidKind.APPLICATION, "a job failed while it used the fast path of CUDA", _READ_JOB_LOG),
)

_INFORMATION: Final = (
    XidCode(37, XidKind.INFORMATION, "the driver sent the GPU's firmware a command that it does not know", _NOTHING),
    *(
        XidCode(code, XidKind.INFORMATION, "the display part of the GPU had an error", _NOTHING)
        for code in (16, 19, 56, 81, *range(111, 119))
    ),
    XidCode(66, XidKind.INFORMATION, "the driver made an invalid register access", _NOTHING),
    XidCode(67, XidKind.INFORMATION, "the driver made an invalid access to the GPU", _NOTHING),
    XidCode(93, XidKind.INFORMATION, "the board wrote to its InfoROM more often than planned", _NOTHING),
    XidCode(106, XidKind.INFORMATION, "a test message of the management bus arrived", _NOTHING),
    XidCode(107, XidKind.INFORMATION, "a silent test message of the management bus arrived", _NOTHING),
    XidCode(160, XidKind.INFORMATION, "the driver took a channel of the GPU out of use", _NOTHING),
    XidCode(162, XidKind.INFORMATION, "the board's power smoothing was switched on again", _NOTHING),
    XidCode(
        171, XidKind.INFORMATION, "an uncorrectable memory error was in DRAM", "Act on the Xid 48 that comes with it."
    ),
    XidCode(
        172, XidKind.INFORMATION, "an uncorrectable memory error was in SRAM", "Act on the Xid 48 that comes with it."
    ),
)

XID_CODES: Final[Mapping[int, XidCode]] = {
    xid.code: xid for xid in sorted((*_PAGE, *_TICKET, *_APPLICATION, *_INFORMATION), key=lambda xid: xid.code)
}
"""By code, in ascending order."""

UNLISTED_MEANING: Final = "a code that this version does not list"
"""Meaning of an Xid that is not in the table; completes the same sentence as `XidCode.meaning`."""

UNLISTED_REMEDY: Final = "Look the code up in NVIDIA's Xid catalog and decide whether to {drain} the GPU."
UNLISTED_ACTION: Final = with_verb(UNLISTED_REMEDY)
"""Action for an Xid that is not in the table, to be worded and as worded for a cluster."""

NONFATAL_MEANING: Final = "an NVLink had an error that it recovered from"
"""Meaning of an Xid that the kernel log calls Nonfatal."""

NONFATAL_ACTION: Final = "Watch for more of them; reset the GPU when its jobs are done if they keep coming."
"""Action for an Xid that the kernel log calls Nonfatal."""


def codes_of(kind: XidKind) -> tuple[int, ...]:
    """Codes of one kind, in ascending order."""
    return tuple(xid.code for xid in XID_CODES.values() if xid.kind is kind)
