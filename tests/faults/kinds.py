"""Error codes of nvml.h by what they mean: the matrix stages one of each kind.

tests/unit/driver/nvml/test_lists_and_events.py protects that every other code of a kind is treated like the staged one.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from tests.faults.injections import CODES

CODE_OF: Final[Mapping[str, int]] = {name.removeprefix("NVML_ERROR_"): code for name, code in CODES.items()} | {
    "a code that no header lists": 250  # as a newer driver may answer
}
"""Every code by its name in nvml.h, without what all of them begin with."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Codes that have one meaning."""

    staged: str  # the one that the matrix injects
    alike: tuple[str, ...] = ()  # the others

    @property
    def names(self) -> frozenset[str]:
        return frozenset({self.staged, *self.alike})


NOT_SUPPORTED: Final = Kind(
    "NOT_SUPPORTED", ("ARGUMENT_VERSION_MISMATCH", "DEPRECATED", "FUNCTION_NOT_FOUND", "VGPU_ECC_NOT_SUPPORTED")
)
EMPTY: Final = Kind("NO_DATA", ("NOT_FOUND",))
GPU_GONE: Final = Kind("GPU_IS_LOST", ("RESET_REQUIRED",))
DRIVER_GONE: Final = Kind("UNINITIALIZED", ("DRIVER_NOT_LOADED",))
DRIVER_REPLACED: Final = Kind("LIB_RM_VERSION_MISMATCH")
_SPECIAL: Final = (NOT_SUPPORTED, EMPTY, GPU_GONE, DRIVER_GONE, DRIVER_REPLACED)
FAILED: Final = Kind(
    "TIMEOUT", tuple(sorted(CODE_OF.keys() - {"TIMEOUT"} - {name for kind in _SPECIAL for name in kind.names}))
)
"""Every other code, and one that no header lists: a plain failure."""

KINDS: Final = (*_SPECIAL, FAILED)
