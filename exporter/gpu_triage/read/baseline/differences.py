"""What differs between a baseline and the present state, field by field; which fields are accepted; and the metrics.

GPUs are matched by UUID; a GPU unknown to the baseline is matched with the recorded GPU in the same slot. Values that
only one side reports are not compared.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Annotated, Any, Final, NamedTuple, cast

from gpu_triage.read.baseline.host_facts import LEVEL, P2P, GpuFacts, HostFacts, LinkFacts, Peer
from gpu_triage.read.metrics.contract import OwnSubject, known
from gpu_triage.read.metrics.metric import Tier, gpu_gauge, host_info

GPU_BASELINE_MISMATCH = gpu_gauge(
    "1 when the field differs from the baseline, 0 when not; absent without a baseline, and if either side does not "
    "report the field. Fields of the host have empty gpu and uuid labels. Kept while the GPU is lost.",
    labels=("field",),
    source="the baseline",
)
GPU_BASELINE_INFO = host_info(
    "The baseline in use: SHA-256 of its file, and when it was recorded (UTC, RFC 3339). Absent without a usable one.",
    labels=("sha256", "recorded"),
    source="the baseline",
)

Aspects = Mapping[str, str]  # values of a field by aspect: a clock, a NIC, a peer; key "" if there is only one

ABSENT: Final = "absent"
BOARD: Final = "uuid"
SLOT: Final = "pci_bus_id"  # these two are compared only where they differ: a board in a slot, a slot of a board


class GpuPair(NamedTuple):
    """A GPU as recorded and as it is now; None on the side that lacks it, which is never both."""

    recorded: GpuFacts | None
    now: GpuFacts | None

    @property
    def latest(self) -> GpuFacts:
        return self.now or cast("GpuFacts", self.recorded)


class Comparison(NamedTuple):
    """The comparison of one field of the host or of a GPU."""

    field: str  # the label of gpu_baseline_mismatch, or BOARD or SLOT
    gpu: GpuPair | None  # None for the host
    was: str  # `was` and `now` hold the values of the aspects that differ; "" if none do
    now: str


def _plain(value: object) -> Aspects:
    return {"": ("on" if value else "off") if isinstance(value, bool) else str(value)}


class _Field(NamedTuple):
    name: str
    attribute: str  # of GpuFacts or HostValues
    aspects: Callable[[Any], Aspects] = _plain  # of a value that is reported
    whole: bool = False  # whether an aspect on only one side counts as a difference; otherwise it is ignored
    has: Callable[[str], bool] = lambda _key: True  # whether a key of the attribute belongs to the field


def _link(limit: str, form: str) -> _Field:
    """A limit of the PCIe link, with those of card and slot, which explain it."""

    def aspects(link: LinkFacts) -> Aspects:
        value = getattr(link, limit)
        return {} if value is None else {"": form.format(value)}

    parts = {limit, f"device_{limit}", f"slot_{limit}"}
    return _Field(f"pcie_{limit}", "pcie", aspects, has=parts.__contains__)


def _p2p(peers: Mapping[str, Peer]) -> Aspects:
    statuses = ((name, key, status) for name, peer in peers.items() for key, status in peer.items())
    return {f"{key.removeprefix(P2P)} to {name}": status for name, key, status in statuses if key != LEVEL}


def _topology(peers: Mapping[str, Peer]) -> Aspects:
    return {f"to {name}": peer[LEVEL] for name, peer in peers.items() if LEVEL in peer}


def _clocks(tables: Mapping[str, Mapping[str, float]]) -> Aspects:
    return {
        f"{kind.removesuffix('_hertz')} {clock}": f"{hertz / 1e6:.0f} MHz"
        for kind, table in tables.items()
        for clock, hertz in table.items()
    }


_HOST: Final = (
    _Field("gpu_count", "gpu_count"),
    _Field("driver_version", "driver_version"),
    _Field("iommu", "iommu_active"),
)
_GPU: Final = (
    _Field("gpu_model", "name"),
    _link("generation", "generation {}"),
    _link("width", "x{}"),
    _Field("numa_node", "numa_node"),
    _Field("nic_affinity", "nics", dict, whole=True),
    _Field("p2p", "peers", _p2p, has=lambda key: key != LEVEL),
    _Field("topology", "peers", _topology, has=lambda key: key == LEVEL),
    _Field("nvlink", "nvlinks_up", lambda links: {f"link {number}": "up" for number in links}, whole=True),
    _Field("vbios_version", "vbios_version"),
    _Field("power_limit", "power_watts", lambda limits: {name: f"{watts:.0f} W" for name, watts in limits.items()}),
    _Field("clocks", "clocks", _clocks),
    _Field("persistence_mode", "persistence_mode"),
    _Field("ecc_mode", "ecc_mode"),
)
_IDENTITY: Final = (_Field(BOARD, "uuid"), _Field(SLOT, "pci_bus_id"))
GPU_FIELDS: Final = tuple(field.name for field in _GPU)
HOST_FIELDS: Final = tuple(field.name for field in _HOST)
ACCEPTABLE: Final = (*HOST_FIELDS, *GPU_FIELDS, BOARD, SLOT)
"""Every field that `changes` reports."""


def compare(recorded: HostFacts, now: HostFacts) -> Iterator[Comparison]:
    """Compare every field that both sides report, equal ones too; a GPU on one side only differs in `BOARD`."""
    yield from _compared(_HOST, None, recorded.host, now.host)
    pairs = match(recorded.gpus, now.gpus)
    names = {gpu.uuid: then.pci_bus_id or then.uuid for then, since in pairs if then and since for gpu in (then, since)}
    for pair in pairs:
        then, since = pair
        if then is not None and since is not None:
            yield from _compared(_IDENTITY + _GPU, pair, _with_peers(then, names), _with_peers(since, names))
            continue
        yield Comparison(BOARD, pair, then.uuid if then else ABSENT, since.uuid if since else ABSENT)
        if since is not None:
            yield Comparison("gpu_model", pair, ABSENT, since.name)


def _compared(rows: Iterable[_Field], pair: GpuPair | None, then: Any, now: Any) -> Iterator[Comparison]:
    for field in rows:
        values = getattr(then, field.attribute), getattr(now, field.attribute)
        if None in values or "" in values:
            continue
        before, after = map(field.aspects, values)
        keys = sorted(before.keys() | after.keys() if field.whole else before.keys() & after.keys())
        if keys or field.whole:
            changed = [key for key in keys if before.get(key) != after.get(key)]
            was, present = (
                ", ".join(f"{key} {values.get(key, ABSENT)}".strip() for key in changed) for values in (before, after)
            )
            yield Comparison(field.name, pair, was, present)


def _with_peers(gpu: GpuFacts, names: Mapping[str, str]) -> GpuFacts:
    """The GPU with its peers by these names instead of their UUIDs; peers without a name are left out."""
    return replace(gpu, peers={names[uuid]: peer for uuid, peer in (gpu.peers or {}).items() if uuid in names} or None)


def changes(recorded: HostFacts, now: HostFacts) -> tuple[Comparison, ...]:
    return tuple(each for each in compare(recorded, now) if each.was != each.now)


def match(recorded: Iterable[GpuFacts], now: Iterable[GpuFacts]) -> tuple[GpuPair, ...]:
    """Pair the GPUs of both sides by UUID, then by slot; sorted by slot, including missing GPUs."""
    now = tuple(now)
    before = {gpu.uuid: gpu for gpu in recorded}
    boards = {gpu.uuid: before.pop(gpu.uuid, None) for gpu in now}
    slots = {gpu.pci_bus_id: gpu for gpu in before.values() if gpu.pci_bus_id}
    pairs = [GpuPair(boards[gpu.uuid] or slots.pop(gpu.pci_bus_id, None), gpu) for gpu in now]
    matched = [pair.recorded for pair in pairs]
    pairs += [GpuPair(gpu, None) for gpu in before.values() if gpu not in matched]
    return tuple(sorted(pairs, key=lambda pair: (pair.latest.pci_bus_id, pair.latest.uuid)))


def accepted(recorded: HostFacts, now: HostFacts, fields: Collection[str]) -> HostFacts:
    """The recorded host with these fields as far as reported now; `BOARD` removes GPUs that are gone."""
    pairs = [
        pair
        for pair in match(recorded.gpus, now.gpus)
        if (BOARD not in fields if pair.now is None else pair.recorded is not None or "gpu_model" in fields)
    ]
    # A GPU's UUID in the result, by its UUID on either side.
    uuids = {
        gpu.uuid: (pair.latest if BOARD in fields else pair.recorded or pair.latest).uuid
        for pair in pairs
        for gpu in filter(None, pair)
    }
    gpus = []
    for pair in pairs:
        gpu = _with_peers(pair.latest, uuids)
        if pair.recorded is not None and pair.now is not None:
            then = _with_peers(pair.recorded, uuids)
            # Peers that were added come with all they have.
            then = replace(then, peers={**(gpu.peers or {}), **(then.peers or {})} or None)
            gpu = replace(then, **_taken(_IDENTITY + _GPU, then, gpu, fields))
        gpus.append(gpu)
    shared = replace(recorded.host, **_taken(_HOST, recorded.host, now.host, fields))
    return HostFacts(now.at, shared, tuple(gpus))


def _taken(rows: Iterable[_Field], then: Any, now: Any, fields: Collection[str]) -> dict[str, Any]:
    taken: dict[str, Any] = {}
    for field in rows:
        value = getattr(now, field.attribute)
        if field.name in fields and value is not None and value != "":
            before = taken.get(field.attribute, getattr(then, field.attribute))
            taken[field.attribute] = value if field.whole else _merged(before, value, field.has)
    return taken


def _merged(before: Any, value: Any, has: Callable[[str], bool]) -> Any:
    """The recorded value with what the field `has` of the present one."""
    if isinstance(value, LinkFacts):
        return replace(before or LinkFacts(), **known({key: each for key, each in asdict(value).items() if has(key)}))
    if not isinstance(before, Mapping) or not isinstance(value, Mapping):
        return value
    return {
        **before,
        **{k: _merged(before.get(k), v, has) for k, v in value.items() if isinstance(v, Mapping) or has(k)},
    }


@dataclass(frozen=True, slots=True)
class BaselineReading:
    """SHA-256 and time of the baseline in use, and whether each field differs, by the labels of its GPU or the host."""

    baseline: Annotated[Mapping[tuple[str, str], bool], GPU_BASELINE_INFO]
    mismatches: Annotated[Mapping[tuple[str, str, str], bool], GPU_BASELINE_MISMATCH]


BASELINE: OwnSubject[BaselineReading | None] = OwnSubject("differences of the host from its baseline", Tier.MEDIUM)
