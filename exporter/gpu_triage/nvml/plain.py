"""NVML's structs without what pynvml does whenever a member is read or set: it looks whether that is text.

Lists and fields have hundreds of members a second, none of them text.
"""

from __future__ import annotations

from ctypes import Structure
from typing import Any


def plain(kind: Any) -> Any:
    """A struct type with the members of one of pynvml's."""
    return type(kind.__name__, (Structure,), {"_fields_": kind._fields_})
