"""Recently published metrics: every series with its history over one window."""

from collections.abc import Mapping
from typing import Final, NamedTuple

from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.judge.evidence.past import Memory
from gpu_triage.judge.evidence.series import TWO_POINTS, Group, Labels, Points
from gpu_triage.machine import Moment
from gpu_triage.read.exporter import exporter_health
from gpu_triage.read.exporter.judgment import JUDGE
from gpu_triage.read.gpu import activity, device_memory, ecc, nvlink, pcie, topology
from gpu_triage.read.host import infiniband, kernel_log
from gpu_triage.read.incidents.decisions import DECISIONS
from gpu_triage.read.metrics.metric import GPU_LABELS, Kind, MetricSpec
from gpu_triage.read.processes import on_gpu, vitals
from gpu_triage.sampler.outcomes import Outcome, OutcomeStore

_NOT_JUDGED: Final = frozenset(
    {
        nvlink.GPU_NVLINK_FEC_BLOCKS_TOTAL,
        nvlink.GPU_NVLINK_SYMBOL_ERRORS_TOTAL,
        nvlink.GPU_NVLINK_LINK_TRANSMIT_BYTES_TOTAL,
        nvlink.GPU_NVLINK_LINK_RECEIVE_BYTES_TOTAL,
        infiniband.GPU_HOST_INFINIBAND_EVENTS_TOTAL,
        topology.GPU_P2P_PEERS,
        pcie.GPU_PCIE_ERRORS_TOTAL,
        on_gpu.GPU_PROCESS_SM_UTILIZATION_RATIO,
        exporter_health.GPU_EXPORTER_COLLECTOR_DURATION_SECONDS,
        activity.GPU_SM_OCCUPANCY_RATIO,
        device_memory.GPU_BAR1_MEMORY_TOTAL_BYTES,
        device_memory.GPU_BAR1_MEMORY_USED_BYTES,
        vitals.GPU_PROCESS_CPU_SECONDS_TOTAL,
        vitals.GPU_PROCESS_RESIDENT_MEMORY_BYTES,
        vitals.GPU_PROCESS_THREADS,
        ecc.GPU_ROW_REMAP_BANKS,
        kernel_log.GPU_HOST_KERNEL_EVENTS_TOTAL,
        ecc.GPU_ECC_AGGREGATE_ERRORS_TOTAL,
    }
)
"""Families the judge never uses: storing them would be a quarter of its work."""

_ZERO_SAYS_NOTHING: Final = frozenset({nvlink.GPU_NVLINK_LINK_ERRORS_TOTAL})
"""Families stored only once nonzero: a GPU has dozens of such series, all 0 if it is healthy."""


class _Round(NamedTuple):
    """One collector's last round for one subject, and its series with their history."""

    finished_at: Moment
    groups: Mapping[MetricSpec, Mapping[Labels, Group]]


class MetricHistory:
    """Keeps a window of what a sampler publishes. A series that is withdrawn is dropped."""

    def __init__(self, window_seconds: float) -> None:
        self._window_seconds = window_seconds
        self._rounds: dict[tuple[str, str], _Round] = {}
        self._began_at: float | None = None
        self.memory = Memory()

    def note(self, store: OutcomeStore, now: Moment) -> None:
        """Add what is currently published; each round is added once."""
        if self._began_at is None:
            self._began_at = now.monotonic
        since = now.monotonic - self._window_seconds
        self.memory.decisions = store.reading(DECISIONS)
        present: dict[tuple[str, str], _Round] = {}
        # The judge's own earlier output is not evidence.
        for collector in (name for name in store.collectors if name != JUDGE.name):
            for outcome in store.of(collector).values():
                key = (collector, outcome.subject)
                before = self._rounds.get(key)
                if before is None or before.finished_at != outcome.finished_at:
                    before = _Round(outcome.finished_at, _extended(outcome, before, since))
                present[key] = before
        self._rounds = present

    def evidence(self, now: Moment) -> HostEvidence:
        """Return the evidence as of the last `note`."""
        index: dict[MetricSpec, dict[Labels, Group]] = {}
        for each in self._rounds.values():
            for spec, groups in each.groups.items():
                known = index.setdefault(spec, {})
                for labels, group in groups.items():
                    # If two subjects claim the same GPU's labels, the first one wins, as on /metrics.
                    known.setdefault(labels, group)
        began_at = now.monotonic if self._began_at is None else self._began_at
        return HostEvidence(min(self._window_seconds, now.monotonic - began_at), now, index, self.memory)


def _extended(
    outcome: Outcome, before: _Round | None, since: float
) -> dict[MetricSpec, dict[Labels, dict[Labels, Points]]]:
    """Return the series of a round, each with its history."""
    at = outcome.finished_at.monotonic
    groups: dict[MetricSpec, dict[Labels, dict[Labels, Points]]] = {}
    past: Mapping[Labels, Group] = {}
    current: MetricSpec | None = None
    of_gpu = judged = False
    for spec, labels, value in outcome.samples:
        if spec is not current:
            # Series of one metric are adjacent, so per-metric values are looked up once.
            current, of_gpu = spec, spec.labels[:2] == GPU_LABELS
            judged = spec not in _NOT_JUDGED
            mine = groups.setdefault(spec, {}) if judged else {}
            # There may be thousands of per-process series, and their history is never used.
            remembered = spec.kind is not Kind.INFO and "pid" not in spec.labels
            past = before.groups.get(spec, {}) if remembered and before is not None else {}
        if not judged or (not value and spec in _ZERO_SAYS_NOTHING):
            continue
        gpu_labels = labels[:2] if of_gpu else ()
        group = mine.get(gpu_labels)
        if group is None:
            group = mine[gpu_labels] = {}
        earlier = past.get(gpu_labels)
        points = None if earlier is None else earlier.get(labels)
        if points is None:
            group[labels] = (at, value)
        elif len(points) == TWO_POINTS and points[1] == points[3] == value:
            # A constant series needs only two points, however long; most error counters are constant.
            group[labels] = (points[0], value, at, value)
        else:
            group[labels] = _with(points, at, value, since)
    return groups


def _with(points: Points, at: float, value: float, since: float) -> Points:
    """Return the points with one added, without those before the window except the last of them."""
    if len(points) > TWO_POINTS and points[-1] == value == points[-3]:
        points = points[:-2]
    first = 0
    while len(points) - first >= TWO_POINTS and points[first + 2] <= since:
        first += 2
    return (*points[first:], at, value)
