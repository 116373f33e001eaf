"""What ``nvidia-smi nvlink --status`` says of links."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from gpu_triage.gpu.nvlink import LinkReading, NvlinkReading
from gpu_triage.offline.about import About

_MOST_GPUS: Final = 256
_MOST_LINKS: Final = 64
_GPU: Final = re.compile(r"GPU \d{1,3}: .{1,100} \(UUID: (GPU-[0-9a-f-]{36})\)")
_LINK: Final = re.compile(r"\s*Link (\d{1,2}): (<inactive>|[\d.]{1,10} GB/s)\s*$")

Links = Mapping[int, bool]
"""Whether each link is up, by its number."""


class NvlinkParser:
    """Parses the output, line by line.

    Attributes:
        links: by UUID of the GPU.
    """

    ABOUT: Final = About("nvidia-smi nvlink", "`--status`", "whether each NVLink is up")

    def __init__(self) -> None:
        self.links: dict[str, dict[int, bool]] = {}
        self._gpu: dict[int, bool] | None = None

    def start(self, line: str) -> bool:
        """Take in a line that may name a GPU; returns whether it does."""
        found = _GPU.match(line)
        if found is None or len(self.links) >= _MOST_GPUS:
            return False
        # The first word on a GPU stands: further commands list the same links with other things.
        self._gpu = self.links.setdefault(found[1], {})
        return True

    def feed(self, line: str) -> bool:
        """Take in a line; False for one that is not of the GPU named last."""
        if self._gpu is None or line[0] not in "\t ":
            self._gpu = None
            return False
        link = _LINK.match(line) if "Link " in line else None
        if link is not None and int(link[1]) < _MOST_LINKS:
            self._gpu.setdefault(int(link[1]), link[2] != "<inactive>")
        return True


def reading_of(uuid: str, links: Mapping[str, Links], alike: frozenset[str]) -> NvlinkReading:
    """The links of a GPU that lead somewhere: those that are up, and those that are up on all others alike.

    A link that is down on all of them has nothing at its other end on this board; so may one of a card with a bridge.

    Args:
        uuid: of the GPU.
        links: of all GPUs, by UUID.
        alike: UUIDs of the other GPUs of its model.
    """
    own = links.get(uuid, {})
    others = [links[other] for other in alike if any(links.get(other, {}).values())]
    led = {
        number: is_up
        for number, is_up in own.items()
        if is_up or (any(own.values()) and others and all(other.get(number) for other in others))
    }
    return NvlinkReading({number: LinkReading(is_up, {}, None, None) for number, is_up in led.items()}, {}, None, None)
