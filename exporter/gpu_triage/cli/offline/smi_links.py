"""Parsers for how GPUs are connected: ``nvidia-smi -L``, ``nvidia-smi nvlink`` and ``nvidia-smi topo -m``."""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from gpu_triage.cli.offline.smi_facts import RawGpu, SmiParser
from gpu_triage.read.gpu.nvlink import CRC, RECOVERY, REPLAY, LinkReading, NvlinkReading
from gpu_triage.read.gpu.topology import CAPABILITIES, P2P_STATUSES

LIST: Final = "nvidia-smi -L"

_MOST_LINKS: Final = 64
_GPU: Final = re.compile(r"\s*GPU (\d{1,3}): (.{1,100}?)(?: \(UUID: (GPU-[\w-]{1,80})\)?(?: \D.{1,100})?)?\s*$")
_LINK: Final = re.compile(r"Link (\d{1,2}): (.{1,80})$")
_STATE: Final = re.compile(r"(<inactive>|inactive)|[\d.]{1,10} GB/s")
_ERRORS: Final = re.compile(r"(Replay|Recovery|CRC)(?: (?:Flit|Data))? Errors: (\d{1,18})$")
_KINDS: Final = {"Replay": REPLAY, "Recovery": RECOVERY, "CRC": CRC}
_NOTES: Final = ("nvlink", "mig ", "device does not")
"""Prefixes, in lower case, of lines that describe a GPU without naming a link."""

_PREFIX: Final = "nvlink/"
ALL_LINKS: Final = -1
"""In place of a number, where nvidia-smi only reports that all are inactive."""
UP: Final = "up"


class NvlinkParser(SmiParser):
    """Parses one or more of these outputs in sequence."""

    KIND = "nvidia-smi nvlink"

    def __init__(self, before: str) -> None:
        super().__init__(before)
        self.report.kind = LIST
        self._reported: frozenset[str] = frozenset()
        self._named: tuple[str, str] | None = None

    def starts(self, line: str) -> bool:
        return any(each in line for each in ("UUID: GPU-", ": NVIDIA ", ": Tesla ")) and self._name(line)

    def feed(self, line: str) -> bool:
        text = line.strip()
        if not text or self._name(line):
            return True
        if (link := _LINK.match(text)) is not None:
            self._note(int(link[1]), link[2])
            return True
        if self.gpu is not None and "all links are inactive" in text.lower():
            self.gpu.note(f"{_PREFIX}{ALL_LINKS}/{UP}", "No")
        return text.lower().removeprefix("nvml:").lstrip().startswith((*_NOTES, "unable to retrieve nvlink"))

    def _name(self, line: str) -> bool:
        if (found := _GPU.match(line)) is None:
            return False
        index, name, uuid = found.groups()
        self.gpu = self.report.by_key.get(index)
        if self.gpu is None and uuid is not None:
            self.gpu = self.report.gpu_at(index, index=index)
            self.gpu.note("product name", name)
            self.gpu.note("gpu uuid", uuid)
        # Without a UUID, only the link lines that follow distinguish a GPU from ordinary text.
        self._named = None if self.gpu is not None else (index, name)
        self._reported = frozenset(self.gpu.facts if self.gpu is not None else ())
        return True

    def _note(self, link: int, said: str) -> None:
        state, errors = _STATE.fullmatch(said), _ERRORS.match(said)
        if link >= _MOST_LINKS or (state is None and errors is None):
            return
        self.report.kind = self.KIND
        if self.gpu is None and self._named is not None:
            index, name = self._named
            self.gpu = self.report.gpu_at(index, index=index)
            self.gpu.note("product name", name)
        gpu, path = self.gpu, f"{_PREFIX}{link}/{UP if errors is None else _KINDS[errors[1]]}"
        # The first value for a link wins: later commands list the same links with other data.
        if gpu is None or path in self._reported:
            return
        if state is not None:
            gpu.note(path, "No" if state[1] else "Yes")
        elif errors is not None:
            # Older drivers count CRC errors of flits and of data separately.
            gpu.facts[path] = str(int(gpu.facts.get(path, "0")) + int(errors[2]))


Links = Mapping[int, LinkReading]  # by link number; None and absent errors were not printed


def grouped(gpu: RawGpu, prefix: str) -> dict[str, dict[str, str]]:
    """The facts below a prefix, by the first part of their name and the rest."""
    found: dict[str, dict[str, str]] = {}
    for name, path in gpu.below(prefix):
        first, _, rest = name.partition("/")
        found.setdefault(first, {})[rest] = gpu.facts[path]
    return found


def links_of(gpu: RawGpu) -> Links:
    found = {int(number): said for number, said in grouped(gpu, _PREFIX).items()}
    # The values of an earlier output come last.
    is_none = next(iter(found), None) == ALL_LINKS
    found = {number: said for number, said in found.items() if (number == ALL_LINKS) == is_none}
    return {
        number: LinkReading(
            None if UP not in said else said[UP] == "Yes",
            {kind: float(said[kind]) for kind in _KINDS.values() if kind in said},
            None,
            None,
        )
        for number, said in found.items()
    }


def reading_of(own: Links, others: Iterable[Links]) -> NvlinkReading:
    """The links of a GPU that are connected: those that are up, and those that are up on all `others` of its model.

    A link that is down on every GPU is unconnected on this board; on cards joined by a bridge, some links may be too.
    """
    up = [{number for number, link in links.items() if link.is_up} for links in (own, *others)]
    peers = [links for links in up[1:] if links]
    expected = set.intersection(*peers) if up[0] and peers else set()
    connected = {number: link for number, link in own.items() if link.is_up is not False or number in expected}
    kinds = dict.fromkeys(kind for link in connected.values() for kind in link.errors)
    totals = {kind: sum(link.errors.get(kind, 0.0) for link in connected.values()) for kind in kinds}
    return NvlinkReading(connected, totals, None, None)


_P2P_COMMAND: Final = re.compile(r"topo\b.* -?-p2p(?:status)? +([rwnap])\b")
_GPU_COLUMN: Final = re.compile(r"GPU(\d{1,3})")
_DEVICE: Final = re.compile(r"(?:GPU|NIC)\d{1,3}|(?:mlx|bnxt_re|irdma|rdma|roce|ib)\w{1,20}")
_LEVEL: Final = re.compile(r"X|NV\d{1,2}|PIX|PXB|PHB|NODE|SYS|SOC|PSB|OK|CNS|GNS|TNS|NS|DR|U|Disabled")
_NUMA, _ID = "NUMA", "ID"
_AFTER_LEVELS: Final = frozenset({"CPU", "Affinity", _NUMA, "GPU", _ID})
_LEVELS_OF_OLD: Final = {"SOC": "SYS", "PSB": "PXB"}  # level names of drivers before 384

_CAPABILITIES: Final = {name[0]: name for name in CAPABILITIES}  # as nvidia-smi topo -p2p takes them
_STATUSES: Final = {
    **dict(zip(("OK", "CNS", "GNS", "TNS", "DR", "NS", "U"), P2P_STATUSES.values(), strict=True)),
    "Disabled": "disabled_by_regkey",
}

PEER: Final = "topology/gpu "
ADAPTER: Final = "topology/adapter "
P2P: Final = "topology/p2p "
NUMA_NODE: Final = "topology/numa node"
MEMORY_IS_NODE: Final = "topology/memory is a numa node"


class SmiTopologyParser(SmiParser):
    """Parses one matrix; the terminal may have wrapped its lines."""

    KIND = "nvidia-smi topo -m"

    def __init__(self, before: str) -> None:
        super().__init__(before)
        self._columns: list[str] = []
        self._after: list[str] = []
        self._row: list[str] = []
        self._capability = "read"

    def starts(self, line: str) -> bool:
        words = line.split()
        if len(words) < 2 or words[0] != "GPU0" or not (_DEVICE.fullmatch(words[1]) or words[1] == "CPU"):  # noqa: PLR2004
            return False
        if found := _P2P_COMMAND.search(self.before):
            self._capability = _CAPABILITIES[found[1]]
        self._head(words)
        return True

    def feed(self, line: str) -> bool:
        words = line.split()
        if not words:
            return not self.report.gpus
        if _DEVICE.fullmatch(words[0]) and len(words) > 1 and _LEVEL.fullmatch(words[1]):
            gpu = _GPU_COLUMN.fullmatch(words[0])
            # NIC rows only repeat what the GPU rows contain.
            self.gpu = None if gpu is None else self.report.add_gpu(index=gpu[1])
            self._row = words[1:]
        elif not self.report.gpus and all(_DEVICE.fullmatch(word) or word in _AFTER_LEVELS for word in words):
            self._head(words)
            return True
        # The cells after the levels are CPU affinity, NUMA affinity and GPU NUMA id.
        elif 0 < len(self._row) < len(self._columns) + sum(word in ("Affinity", "ID") for word in self._after):
            self._row += words
        else:
            return False
        if self.gpu is not None and len(self._row) >= len(self._columns):
            self._note(self.gpu)
        return True

    def _head(self, words: list[str]) -> None:
        for word in words:
            (self._columns if _DEVICE.fullmatch(word) and not self._after else self._after).append(word)

    def _note(self, gpu: RawGpu) -> None:
        for column, level in zip(self._columns, self._row, strict=False):
            peer = _GPU_COLUMN.fullmatch(column)
            if level == "X" or _LEVEL.fullmatch(level) is None:
                continue
            if level in _STATUSES and peer is not None:
                self.report.kind = "nvidia-smi topo -p2p"
                gpu.note(f"{P2P}{peer[1]}/{self._capability}", _STATUSES[level])
            elif level not in _STATUSES:
                name = f"{ADAPTER}{column}" if peer is None else f"{PEER}{peer[1]}"
                gpu.note(name, _LEVELS_OF_OLD.get(level, level))
        after = self._row[len(self._columns) :]
        if _NUMA in self._after and len(after) > 1:
            # Nodes for memory of MIG instances follow: 0,3-9.
            if (node := after[1].partition(",")[0]).isdecimal():
                gpu.note(NUMA_NODE, node)
            if _ID in self._after and after[2:]:
                gpu.note(MEMORY_IS_NODE, "yes" if after[2].isdecimal() else "no")
