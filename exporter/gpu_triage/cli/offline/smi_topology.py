"""Parses ``nvidia-smi topo -m``: how GPUs are connected to each other, and their NUMA nodes."""

from __future__ import annotations

import re
from typing import Final

from gpu_triage.cli.offline.about import About
from gpu_triage.cli.offline.smi_report import RawGpu, SmiReport

_GPU: Final = re.compile(r"GPU(\d{1,3})")
_DEVICE: Final = re.compile(r"(?:GPU|NIC)\d{1,3}|(?:mlx|bnxt_re|irdma|rdma|roce|ib)\w{1,20}")
_LEVEL: Final = re.compile(r"X|NV\d{1,2}|PIX|PXB|PHB|NODE|SYS|SOC|PSB")
_AFTER_LEVELS: Final = frozenset({"CPU", "Affinity", "NUMA", "GPU", "ID"})
_NUMA: Final = "NUMA"
_LEVELS_OF_OLD: Final = {"SOC": "SYS", "PSB": "PXB"}
"""Level names of drivers before 384."""

PEER: Final = "topology/gpu "
NUMA_NODE: Final = "topology/numa node"


class SmiTopologyParser:
    """Parses one matrix; the terminal may have wrapped its lines."""

    ABOUT: Final = About(
        "nvidia-smi topo -m", "also with broken lines", "how each GPU reaches the others, and its NUMA node"
    )

    def __init__(self) -> None:
        self.report = SmiReport(self.ABOUT.kind)
        self._columns: list[str] = []
        self._after: list[str] = []
        self._row: list[str] = []
        self._gpu: RawGpu | None = None

    @classmethod
    def starting(cls, line: str) -> SmiTopologyParser | None:
        """A parser that has consumed this line, if it is the header of such a matrix."""
        words = line.split()
        if len(words) < 2 or words[0] != "GPU0" or not (_DEVICE.fullmatch(words[1]) or words[1] == "CPU"):  # noqa: PLR2004
            return None
        parser = cls()
        parser._head(words)
        return parser

    def feed(self, line: str) -> bool:
        """Parse a line; False if the matrix ended before it."""
        words = line.split()
        if not words:
            return not self.report.gpus
        if _DEVICE.fullmatch(words[0]) and len(words) > 1 and _LEVEL.fullmatch(words[1]):
            gpu = _GPU.fullmatch(words[0])
            # NIC rows only repeat what the GPU rows contain.
            self._gpu = None if gpu is None else self.report.add_gpu(index=gpu[1])
            self._row = words[1:]
        elif not self.report.gpus and all(_DEVICE.fullmatch(word) or word in _AFTER_LEVELS for word in words):
            self._head(words)
            return True
        elif self._row and len(self._row) < len(self._columns) + self._trailing:
            self._row += words
        else:
            return False
        if self._gpu is not None and len(self._row) >= len(self._columns):
            self._note(self._gpu)
        return True

    @property
    def _trailing(self) -> int:
        """The number of cells after the levels: CPU affinity, NUMA affinity, GPU NUMA id."""
        return self._after.count("Affinity") + self._after.count("ID")

    def _head(self, words: list[str]) -> None:
        for word in words:
            (self._columns if _DEVICE.fullmatch(word) and not self._after else self._after).append(word)

    def _note(self, gpu: RawGpu) -> None:
        for column, level in zip(self._columns, self._row, strict=False):
            peer = _GPU.fullmatch(column)
            if peer is not None and _LEVEL.fullmatch(level) and level != "X":
                gpu.note(f"{PEER}{peer[1]}", _LEVELS_OF_OLD.get(level, level))
        after = self._row[len(self._columns) :]
        if _NUMA in self._after and len(after) > 1 and after[1].isdecimal():
            gpu.note(NUMA_NODE, after[1])
