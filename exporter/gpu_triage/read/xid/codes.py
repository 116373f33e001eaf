"""Every Xid that NVIDIA documents: its meaning, urgency, and recommended action, from the table `codes.json`.

That is the only list of Xid codes: the rules, `gpu-triage check`, the runbooks and the documentation are generated from
it or tested against it. Sources: NVIDIA's Xid catalog
(https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html) and, for codes that only Volta and older boards
report, the previous listing (https://docs.nvidia.com/deploy/xid-errors/); for codes that neither has, nverror.h of
open-gpu-kernel-modules 595.45.04. A code that is not here is newer than this table, or one that NVIDIA lists as unused,
which does not mean that it stays so: it gets a ticket, because a human has to look it up.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from gpu_triage.documents import packaged, parse_json


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


def _codes_in(text: str) -> Iterator[int]:
    """The codes of ``46 109-111``."""
    for part in text.split():
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def _read() -> Mapping[int, XidCode]:
    """The table, which has codes and their meaning by kind, then by remedy; and codes by each further property."""
    table = parse_json(packaged(__package__, "codes.json").encode(), "codes.json")
    fatal_in_text, nvlink, common = (set(_codes_in(table[name])) for name in ("fatal_in_text", "nvlink", "common"))
    since = {code: gpus for gpus, codes in table["since"].items() for code in _codes_in(codes)}
    found = {
        code: XidCode(
            code,
            XidKind(kind),
            meaning,
            remedy,
            fatal_in_text=code in fatal_in_text,
            nvlink=code in nvlink,
            common=code in common,
            since=since.get(code, ""),
        )
        for kind, remedies in table["kinds"].items()
        for remedy, meanings in remedies.items()
        for codes, meaning in meanings.items()
        for code in _codes_in(codes)
    }
    return {code: found[code] for code in sorted(found)}


XID_CODES: Final = _read()
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
