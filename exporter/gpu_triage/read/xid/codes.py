"""Every Xid that NVIDIA documents: its meaning, urgency, and recommended action.

This is the only list of Xid codes: the rules, `gpu-triage check`, the runbooks and the documentation are generated from
it or tested against it. Sources: NVIDIA's Xid catalog
(https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html) and, for codes that only Volta and older boards
report, the previous listing (https://docs.nvidia.com/deploy/xid-errors/); for codes that neither has, nverror.h of
open-gpu-kernel-modules 595.45.04. A code that is not here is newer than this table, or one that NVIDIA lists as unused,
which does not mean that it stays so: it gets a ticket, because a human has to look it up.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final


class XidKind(Enum):
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
    code: int
    kind: XidKind
    meaning: str  # completes "The driver reported Xid N: …"; lower case, no final period
    remedy: str  # what to do now, as a sentence in which ``{drain}`` and ``{Drain}`` are verbs (see `with_verb`)
    # Whether the kernel message contains Fatal or Nonfatal after the code. `kind` is that of the Fatal ones.
    fatal_in_text: bool = False
    nvlink: bool = False  # whether it concerns an NVLink, so that links and fabric fail with it
    # Whether its counter starts at 0 on every GPU, so that increase() includes the first occurrence.
    common: bool = False
    since: str = ""  # which GPUs report it, if not all; "" otherwise

    @property
    def action(self) -> str:
        return with_verb(self.remedy)


def with_verb(text: str, verb: str = "drain") -> str:
    """Return advice with this verb for taking a GPU or host out of service: where no scheduler is, none is drained."""
    return text.replace("{drain}", verb).replace("{Drain}", verb.capitalize())


DOUBLE_BIT_ERROR: Final = 48
SLOW_GSP: Final = 119
CONTAINED_ERROR: Final = 94
"""Reported right after a double-bit error that only killed the affected job."""

_RESET: Final = "{Drain} the GPU, then reset it; plan to replace the board if the error comes back."
_RESET_GSP: Final = "{Drain} the GPU, then reset it; reboot the host if the reset fails."
_RESET_LINK: Final = "{Drain} the GPU, then reset it; check its NVLink path if the error comes back."
_RESET_LATER: Final = "Reset the GPU when its jobs are done; plan to replace the board if the error comes back."
_RESTART_JOB: Final = "Restart the job that failed; reset the GPU if other jobs fail on it in the same way."
_READ_JOB_LOG: Final = "Read the job's log; suspect the GPU only if other jobs fail on it in the same way."
_NOTHING: Final = "Do nothing unless an alert or another Xid points to this GPU."

_MEANINGS: Final[Mapping[XidKind, Mapping[str, Mapping[int, str]]]] = {
    XidKind.PAGE: {
        _RESET: {
            46: "the GPU stopped processing",
            DOUBLE_BIT_ERROR: "the GPU memory had an uncorrectable (double-bit) ECC error",
            62: "the GPU's internal microcontroller halted",
            109: "switching between contexts took too long",
            110: "the GPU reported a security fault",
            140: "the GPU had an ECC error that it could not recover from",
            158: "the GPU had a fatal timeout",
            175: "the GPU's memory system hangs",
        },
        "{Drain} the GPU, then reset it, and plan to replace the board.": {
            64: "a bad memory row or page could not be replaced by a spare one"
        },
        "{Drain} the GPU, then reset it; check its NVLink bridge or NVSwitch if the error comes back.": {
            74: "an NVLink had an error that stops its traffic"
        },
        "{Drain} the host and power-cycle it; check the GPU's seating, cables and power if it is lost again.": {
            79: "the GPU fell off the bus (power, PCIe signal, heat or a dying board)"
        },
        "{Drain} the GPU and stop every job on it, then reset it.": {
            95: "a memory error was not contained, so every job on the GPU may compute wrong results"
        },
        _RESET_GSP: {
            SLOW_GSP: "the GPU's system processor (GSP) did not answer in time",
            120: "the GPU's system processor (GSP) failed",
            143: "the GPU could not be initialized",
        },
        _RESET_LINK: {
            136: "an NVLink could not be trained",
            144: "an NVLink had an error in its SAW unit",
            145: "an NVLink had an error in its RLW unit",
            146: "an NVLink had an error in its TLW unit",
            147: "an NVLink had an error in its TREX unit",
            148: "an NVLink had an error in its NVLPW unit",
            149: "an NVLink had an error in its NETIR unit",
            150: "an NVLink had an error in its MSE unit",
        },
        "{Drain} the host and power-cycle it; check the slot, riser and power if the error comes back.": {
            167: "PCIe had a fatal timeout"
        },
        "{Drain} the host and reset the GPU; reboot the host if the link does not come back.": {
            173: "the link between CPU and GPU (C2C) failed"
        },
    },
    XidKind.TICKET: {
        _RESET_LATER: {
            18: "the GPU may not access host memory, because bus mastering is off",
            24: "a semaphore of the GPU timed out",
            26: "the GPU memory did not answer in time",
            30: "the GPU could not access a semaphore",
            33: "the GPU's internal microcontroller had an error",
            57: "the memory interface of the GPU could not be programmed",
            58: "the memory interface of the GPU is unstable",
            59: "the GPU's internal microcontroller had an error",
            90: "the L2 cache of the GPU had an error",
            61: "the GPU's internal microcontroller stopped at a breakpoint",
            122: "the GPU could not read the flash memory on its board",
            123: "the GPU could not write the flash memory on its board",
            124: "the GPU could not erase the flash memory on its board",
            125: "the data that the board keeps about itself (InfoROM) is damaged",
            156: "the GPU took a faulty part of itself out of use",
            161: "a channel of the GPU could not be taken out of use",
            168: "the GPU has less memory than before, because some of it is faulty",
            169: "the GPU's security microcontroller halted",
        },
        _RESTART_JOB: {
            38: "the firmware that switches contexts did not answer in time",
            44: "the graphics engine failed while switching contexts",
            108: "an NVLink peer could not translate an address",
            159: "the bus between CPU and GPU reported an error that carries no data",
            **dict.fromkeys(
                (39, 40, 41, 70, 71, 72, 75, 76, 77, 85, *range(126, 136)),
                "a copy engine had an error, and the job that used it died",
            ),
        },
        "{Drain} the host, power it off and connect the GPU's power cable.": {
            54: "the auxiliary power cable of the GPU is not connected"
        },
        "Reset the GPU when its jobs are done, so that the spare memory is used.": {
            63: "a bad memory row or page is marked for replacement by a spare one"
        },
        "Update the vGPU software of host and guest to match.": {78: "a vGPU could not be started"},
        "Watch the count of corrected errors, and plan to replace the board if it keeps rising.": {
            92: "ECC corrects single-bit memory errors at a high rate"
        },
        "Restart the job that died, and reset the GPU when its other jobs are done.": {
            CONTAINED_ERROR: "a memory error was contained, and only the affected job died"
        },
        "Watch for more of them, and reset the GPU when its jobs are done.": {
            121: "the link between CPU and GPU (C2C) had a corrected error"
        },
        "Restart the job, and look for an Xid of another GPU at the same time: that GPU is the cause.": {
            137: "an access over NVLink was refused, mostly because of an error on the GPU at the other end"
        },
        "Restart the virtual machine that uses the GPU.": {
            151: "the encryption keys of confidential computing could not be renewed"
        },
        "{Drain} the GPU and do what the driver asks for (nvidia-smi -q, GPU Recovery Action).": {
            154: "the driver asks for another recovery action than before"
        },
        "Reset the GPU when its jobs are done; check its NVLink path if the error comes back.": {
            155: "the driver took an NVLink out of use"
        },
        "{Drain} the GPU and plan to replace the board.": {
            157: "the GPU could not take a faulty part of itself out of use"
        },
        "Ask the vendor whether to replace the board; until then, expect larger swings of its power draw.": {
            163: "the board's power smoothing was switched off",
            164: "the board's power smoothing is close to the end of its lifetime",
            165: "the board's power smoothing has reached the end of its lifetime",
        },
        "Stop the job that uses confidential computing, then reset the GPU.": {
            166: "an NVLink carried traffic before its encryption was set up",
            170: "an NVLink had an error in confidential computing mode",
        },
    },
    XidKind.APPLICATION: {
        _READ_JOB_LOG: {
            8: "the GPU stopped working for a job that took too long",
            13: "a kernel caused an exception on the GPU",
            31: "a job accessed an invalid memory address",
            43: "a job failed, and the GPU stopped processing for it",
            69: "a job used the graphics engine in an invalid way",
            141: "a job failed while it used the fast path of CUDA",
            **dict.fromkeys(
                (1, 2, 3, 4, 5, 6, 7, 9, 11, 12, 20, 21, 25, 32, 80), "a job sent an invalid command stream"
            ),
            **{
                code: f"a job caused an error in {engine} engine"
                for engine, codes in {
                    "a video": (22, 27, 28, 29, 34, 35, 36, 42, 60, 65),
                    "a video encoding": (47, 73, 142),
                    "a video decoding": (68, 83, 84, 88, 89, 96, 97, 98),
                    "a JPEG": (82, *range(99, 106)),
                    "an optical flow": (86, 139),
                    "a deep learning (DLA)": (138, 152, 153),
                }.items()
                for code in codes
            },
        },
        "Look for another Xid just before this one: that is the cause.": {
            45: "a job was removed from the GPU, because it was killed or because of an error before"
        },
    },
    XidKind.INFORMATION: {
        _NOTHING: {
            **dict.fromkeys((16, 19, 56, 81, *range(111, 119)), "the display part of the GPU had an error"),
            37: "the driver sent the GPU's firmware a command that it does not know",
            66: "the driver made an invalid register access",
            67: "the driver made an invalid access to the GPU",
            87: "the driver reported about itself",
            93: "the board wrote to its InfoROM more often than planned",
            106: "a test message of the management bus arrived",
            107: "a silent test message of the management bus arrived",
            160: "the driver took a channel of the GPU out of use",
            162: "the board's power smoothing was switched on again",
            174: "the driver stopped a process and reset its channel",
            176: "PCIe corrected errors",
        },
        "Act on the Xid 48 that comes with it.": {
            171: "an uncorrectable memory error was in DRAM",
            172: "an uncorrectable memory error was in SRAM",
        },
    },
}
"""Meaning of each code, by kind and action."""

_NVLINK_5: Final = range(144, 151)
_NVLINK: Final = frozenset({74, 108, 136, 137, *_NVLINK_5, 155, 166, 170})
_COMMON: Final = frozenset({13, 31, 32, 43, 45, 68, 69, SLOW_GSP})
_SINCE: Final = {
    "Volta and older": (*range(1, 8), 9, 12, 18, 20, 21, 22, 24, *range(26, 31), *range(33, 37), 42, 57, 58, 59),
    "Hopper and newer": (136, 137, 151),
    "Blackwell and newer": (163, 164, 165, 166, 170),
    "Blackwell and newer (NVLink 5)": (*_NVLINK_5, 155),
    "Grace systems": (121, 159, 173),
    "Jetson": (138, 152, 153),
}

_SINCE_BY_CODE: Final = {code: since for since, codes in _SINCE.items() for code in codes}

XID_CODES: Final[Mapping[int, XidCode]] = {
    code: XidCode(
        code,
        kind,
        meaning,
        action,
        fatal_in_text=code in _NVLINK_5,
        nvlink=code in _NVLINK,
        common=code in _COMMON,
        since=_SINCE_BY_CODE.get(code, ""),
    )
    for code, meaning, action, kind in sorted(
        (code, meaning, action, kind)
        for kind, actions in _MEANINGS.items()
        for action, meanings in actions.items()
        for code, meaning in meanings.items()
    )
}
"""By code, in ascending order."""

UNLISTED_MEANING: Final = "a code that is not in this version's table"
"""Meaning of an Xid that is not in the table; completes the same sentence as `XidCode.meaning`."""

UNLISTED_REMEDY: Final = "Look the code up in NVIDIA's Xid catalog and decide whether to {drain} the GPU."
"""Action for an Xid that is not in the table, to be worded."""

NONFATAL_MEANING: Final = "an NVLink had an error that is not known to be fatal; the job may have died all the same"
"""Meaning of an NVLink 5 Xid that the kernel log does not call Fatal.

The word is about the link: 18 of 51 nonfatal errors in NVIDIA's decode sheet end in Xid 45, 48, 94, 95 or lost packets.
"""

NONFATAL_ACTION: Final = (
    "See whether Xid 45, 48, 94, 95 or 154 followed on this GPU or at the other end of the link, and act on that; "
    "without one, watch for more."
)
"""Action for such an Xid."""

SLOW_GSP_TIMES: Final = 3
"""As many timeouts in a row make the driver reset the GPU; after fewer it goes on (kernel_gsp.c,
gspRpcTimeoutGpuResetThreshold)."""
SLOW_GSP_MEANING: Final = "the GPU's system processor (GSP) answered late, and the driver went on"
"""Meaning of fewer timeouts, of a GPU that answers."""
SLOW_GSP_ACTION: Final = (
    "Let its job reach a checkpoint; if more come, reset the GPU: after three in a row, the driver does."
)
"""Action for these."""


def codes_of(kind: XidKind) -> tuple[int, ...]:
    return tuple(xid.code for xid in XID_CODES.values() if xid.kind is kind)
