"""Where NVML has the counters of an NVLink link: by driver and generation, in different fields."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from gpu_triage.driver.nvml.fields import FieldId

REPLAY, RECOVERY, CRC = "replay", "recovery", "crc"
RECOVERY_FAILED: Final = "recovery_failed"
ERROR_TYPES: Final = (REPLAY, RECOVERY, RECOVERY_FAILED, CRC)
TRANSMIT, RECEIVE = "transmit", "receive"

_BYTES_PER_KIB: Final = 1024
_LINKS_WITH_OWN_FIELDS: Final = 12
_LINKS_OF_FIRST_BLOCK: Final = 6


@dataclass(frozen=True, slots=True)
class Source:
    """One way to read a counter of a link: a field with the link as scope.

    Attributes:
        second: field ID of link 6, for older drivers with a field for each of twelve links; `field` is link 0's.
        scale: factor from the counter's unit to the published unit.
    """

    field: int
    second: int | None = None
    scale: int = 1

    def of(self, link: int) -> FieldId | None:
        """Field to request for a link, or None."""
        if self.second is None:
            return (self.field, link)
        if link >= _LINKS_WITH_OWN_FIELDS:
            return None
        return self.field + link if link < _LINKS_OF_FIRST_BLOCK else self.second + link - _LINKS_OF_FIRST_BLOCK


SOURCES: Final[Mapping[str, tuple[Source, ...]]] = {
    # NVML_FI_DEV_NVLINK_ERROR_DL_* (161-163), before r520 NVML_FI_DEV_NVLINK_*_ERROR_COUNT_L*, and for
    # recoveries on Blackwell NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS (215).
    REPLAY: (Source(161), Source(46, 108)),
    RECOVERY: (Source(162), Source(215), Source(53, 114)),
    # NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_FAILED_EVENTS.
    RECOVERY_FAILED: (Source(214),),
    CRC: (Source(163), Source(32, 96)),
    # NVML_FI_DEV_NVLINK_THROUGHPUT_DATA_* (138, 139), else NVML_FI_DEV_NVLINK_COUNT_{XMIT,RCV}_BYTES.
    TRANSMIT: (Source(138, scale=_BYTES_PER_KIB), Source(202)),
    RECEIVE: (Source(139, scale=_BYTES_PER_KIB), Source(204)),
}
"""Ways to read each counter, preferred first."""
