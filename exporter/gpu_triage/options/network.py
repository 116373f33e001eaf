"""Syntax of network device patterns and their line rates: ``efa*=100G``."""

from __future__ import annotations

import re
from typing import Final

from gpu_triage.documents import quoted
from gpu_triage.options.config import LineRate
from gpu_triage.options.values import TextType

_PATTERN: Final = re.compile(r"[A-Za-z0-9_.:@*?\[\]-]{1,64}")
_RATE: Final = re.compile(r"([0-9]{1,6})(M|G)")
_BYTES_PER_SECOND: Final = {"M": 1_000_000 // 8, "G": 1_000_000_000 // 8}


def _parse_device_pattern(text: str) -> str:
    if not _PATTERN.fullmatch(text):
        raise ValueError(f"{quoted(text)} is invalid; write a device or a pattern, such as mlx5_* or ens1f[01]np0")
    return text


def _parse_line_rate(text: str) -> LineRate:
    device, _, rate = text.partition("=")
    match = _RATE.fullmatch(rate.strip())
    if match is None or not int(match[1]):
        raise ValueError(
            f"{quoted(text)} is invalid; write a device or a pattern and bits per second, such as ens5=100G"
        )
    return LineRate(_parse_device_pattern(device.strip()), int(match[1]) * _BYTES_PER_SECOND[match[2]])


def _show_line_rate(rate: LineRate) -> str:
    unit = "M" if rate.bytes_per_second % _BYTES_PER_SECOND["G"] else "G"
    return f"{rate.device}={rate.bytes_per_second // _BYTES_PER_SECOND[unit]}{unit}"


DEVICE_PATTERN: Final = TextType("PATTERN", _parse_device_pattern)
LINE_RATE: Final = TextType("DEVICE=RATE", _parse_line_rate, _show_line_rate)
