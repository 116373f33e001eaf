"""NVML structs without pynvml's attribute hooks, which check each member access for text.

Lists and fields access hundreds of members per second, none of them text.
"""

from __future__ import annotations

from ctypes import Structure
from typing import Any


def plain(kind: Any) -> Any:
    """Create a struct type with the same members as one of pynvml's."""
    return type(kind.__name__, (Structure,), {"_fields_": kind._fields_})
