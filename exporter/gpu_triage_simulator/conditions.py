"""The timeline of a scenario, resolved into one immutable set of conditions per GPU and segment between events."""

import dataclasses
import math
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeVar

from gpu_triage.read.gpu.throttle import REASONS
from gpu_triage_simulator import effects, host_effects
from gpu_triage_simulator.gauges import (
    APPLICATIONS_CLOCKS,
    HW_POWER_BRAKE,
    HW_SLOWDOWN,
    HW_THERMAL,
    SW_POWER_CAP,
    SW_THERMAL,
)
from gpu_triage_simulator.job import FORWARD, Rank, Shares
from gpu_triage_simulator.load import Load
from gpu_triage_simulator.observer_effects import Reboot
from gpu_triage_simulator.readings import Readings
from gpu_triage_simulator.scenario import Event, Gpu, Scenario, Slot

E = TypeVar("E")

_NO_LOAD: Final = Load(
    utilization=0.0,
    memory_utilization=0.0,
    intensity=0.8,
    jitter=0.0,
    pcie_receive_bytes_per_second=0.0,
    pcie_transmit_bytes_per_second=0.0,
    encoder=0.0,
    decoder=0.0,
)


@dataclass(frozen=True, slots=True)
class MigLayout:
    """The MIG layout of a GPU: the scenario second it was created, and its instances by MIG device index."""

    since: int
    instances: Mapping[int, effects.MigInstance]


_GOLDEN_RATIO: Final = (math.sqrt(5.0) - 1.0) / 2.0
_FULL_DUTY: Final = 1.0
_PACE_SECONDS: Final = 60


class UnderLoad(NamedTuple):
    """SM clock, power and throttle reasons of a GPU with running kernels."""

    sm_mhz: float
    watts: float
    reasons: int


@dataclass(frozen=True, slots=True)
class GpuConditions:
    """Conditions of one GPU during a segment of the timeline; units as in the effects."""

    card: Gpu
    load: Load
    readings: Readings  # what the driver reports in place of what follows from the load
    ambient_celsius: float
    power_limit_watts: float
    sm_target_mhz: int
    slot: Slot  # of the GPU, with its maximum link and NUMA node
    vbios_version: str
    persistence_mode: bool
    ecc_mode: bool
    link_width: int
    link_generation: int
    thermal: tuple[effects.ThermalThrottle, ...]
    brake: tuple[effects.PowerBrake, ...]
    miscounted_cap: float  # seconds that the power cap counter wrongly gains per second
    frozen_counters: int  # bits of the throttle reasons with a frozen counter
    remap_pending: bool
    remap_failure: bool
    repairs: frozenset[str]  # members of effects.Repair that are set
    pages_pending: bool
    p2p_status: str
    recovery_action: int
    links_down: Mapping[int, int]  # NVLink links that carry no traffic, with their state
    links_slow: Mapping[int, float]  # NVLink links with a share of their line rate
    mig: MigLayout | None
    reset_required: bool
    denied: bool
    removed: bool

    def under_load(self, share: float, step: int, relief_mhz: int = 0) -> UnderLoad:
        """The GPU in a second in which kernels of its load run for a share of the time; clocks are up even at 0.

        Args:
            relief_mhz: by how much the driver lowers the clock because the GPU is too warm.
        """
        model = self.card.model
        top = model.clocks.sm_max
        mhz = float(self.card.boost_mhz or model.clocks.sm_under_load)
        reasons = 0
        # Application clocks at their default are not set by a user and limit nothing.
        if self.sm_target_mhz != model.clocks.sm_target:
            mhz = min(mhz, self.sm_target_mhz)
            reasons |= APPLICATIONS_CLOCKS if self.sm_target_mhz < model.clocks.sm_target else 0
        for thermal in self.thermal:
            if phase(step) < thermal.duty:
                mhz = min(mhz, thermal.sm_clock_mhz)
                reasons |= SW_THERMAL if thermal.source == "sw" else HW_THERMAL | HW_SLOWDOWN
        for brake in self.brake:
            if phase(step) < brake.duty:
                mhz = min(mhz, brake.sm_clock_mhz)
                reasons |= HW_POWER_BRAKE | HW_SLOWDOWN
        if relief_mhz:
            mhz = max(mhz - relief_mhz, float(model.clocks.sm_idle))
            reasons |= SW_THERMAL
        idle, limit = model.power.idle, self.power_limit_watts
        dynamic = (self.load.intensity or 0.0) * (model.power.default_limit - idle) * share
        watts = idle + dynamic * (mhz / top) ** 2
        if watts > limit and dynamic:
            mhz = max(top * math.sqrt(max(limit - idle, 0.0) / dynamic), float(model.clocks.sm_idle))
            watts = idle + dynamic * (mhz / top) ** 2
            reasons |= SW_POWER_CAP
        return UnderLoad(mhz, watts, reasons)


class Timeline:
    """The events of a scenario, queried by scenario time in seconds.

    Attributes:
        edges: times at which anything changes, on this host or for its jobs.
    """

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._hosts = {name: Timeline(peer) for name, peer in scenario.peers.items()}
        self._members = {
            rank.gpu: (place, number)
            for place, job in enumerate(scenario.jobs)
            for number, rank in enumerate(job.ranks)
            if rank.host == scenario.name
        }
        changes: list[float] = [
            each for job in scenario.jobs for episode in job.episodes for each in (episode.at, episode.until)
        ]
        changes += [each for event in scenario.events for each in (event.at, event.until) if each is not None]
        changes += [edge for host in self._hosts.values() for edge in host.edges]
        self.edges: tuple[float, ...] = tuple(sorted({0, *(each for each in changes if each < math.inf)}))
        kinds = (effects.ThermalThrottle, effects.PowerBrake)
        self._flickers = any(
            isinstance(event.effect, kinds) and event.effect.duty < _FULL_DUTY
            for host in (scenario, *scenario.peers.values())
            for event in host.events
        )
        # Most of a job lasts for minutes, and all GPUs of a host ask for the same seconds.
        self._course = lru_cache(maxsize=64)(self._ranks)
        self._by_gpu = [
            tuple(event for event in scenario.events if index in event.gpus) for index in range(len(scenario.gpus))
        ]
        # Indexed by kind, because every NVML call searches it: a day of repeated events has hundreds.
        self._of = [_by_kind(events) for events in self._by_gpu]
        self._of_host = _by_kind(event for event in scenario.events if not event.gpus)
        self._conditions = [
            tuple(self._resolve(scenario.card(index, edge), index, edge) for edge in self.edges)
            for index in range(len(scenario.gpus))
        ]

        self._losses = [[event for event, _ in self.of(effects.Lost, index)] for index in range(len(scenario.gpus))]
        # Sets, because a scenario may start thousands of processes, each checked whenever a GPU's processes are listed.
        self._starts = [(event, frozenset(start.pids)) for event, start in self.host(host_effects.Start)]
        self._kills = [(event, frozenset(kill.pids)) for event, kill in self.host(host_effects.Kill)]
        self._of_ranks = {each.pid: each.gpu for each in scenario.processes if each.gpu in self._members}

    def segment(self, seconds: float) -> int:
        """Number of the segment that contains this time; the first one for times before 0."""
        return max(0, bisect_right(self.edges, seconds) - 1)

    def conditions(self, gpu: int, seconds: float) -> GpuConditions:
        return self._conditions[gpu][self.segment(seconds)]

    def speed(self, gpu: int, seconds: float) -> float:
        """How fast a GPU computes at a time, relative to its model's clock under load; 0 if it is lost.

        Whatever depends on the past is left out, so that a host's jobs can ask for GPUs of other hosts: the noise of
        the load, and the clock that the driver lowers by itself on a warm GPU (write that as a thermal throttle).
        """
        if self.off_the_bus(gpu, seconds):
            return 0.0
        conditions = self.conditions(gpu, seconds)
        running = conditions.under_load(conditions.load.utilization or 0.0, int(seconds))
        return running.sm_mhz / conditions.card.model.clocks.sm_under_load

    def shares(self, gpu: int, seconds: float) -> Shares | None:
        """What the rank on a GPU does in a second; None for a GPU without a job."""
        if gpu not in self._members:
            return None
        place, number = self._members[gpu]
        return self._at(place, seconds)[number]

    def pace(self, seconds: float) -> float:
        """Steps of this host's jobs that span hosts, as a share of those without trouble, in the minute from now on."""
        jobs = self._scenario.jobs
        spanning = {place for place, _ in self._members.values() if len({rank.host for rank in jobs[place].ranks}) > 1}
        moments = [seconds + more for more in range(_PACE_SECONDS if self._flickers else 1)]
        paces = [
            self._at(place, moment)[0].steps * jobs[place].step_seconds for place in spanning for moment in moments
        ]
        return sum(paces) / len(paces) if paces else FORWARD

    def _at(self, place: int, seconds: float) -> tuple[Shares, ...]:
        segment = self.segment(seconds)
        return self._course(place, max(0.0, math.floor(seconds) if self._flickers else self.edges[segment]))

    def _ranks(self, place: int, seconds: float) -> tuple[Shares, ...]:
        job = self._scenario.jobs[place]
        return job.shares(seconds, [self._speed_of(rank, seconds) for rank in job.ranks])

    def _speed_of(self, rank: Rank, seconds: float) -> float:
        if rank.host == self._scenario.name:
            return self.speed(rank.gpu, seconds)
        host = self._hosts.get(rank.host)
        return FORWARD if host is None else host.speed(rank.gpu, seconds)

    def of(self, kind: type[E], gpu: int) -> Iterator[tuple[Event, E]]:
        """Every event of a kind on a GPU, with its effect."""
        for event in self._of[gpu].get(kind, ()):
            yield event, event.effect

    def host(self, kind: type[E]) -> Iterator[tuple[Event, E]]:
        """Every event of a kind on the host, with its effect."""
        for event in self._of_host.get(kind, ()):
            yield event, event.effect

    def host_active(self, kind: type[E], seconds: float) -> bool:
        return any(event.active(seconds) for event in self._of_host.get(kind, ()))

    def gpu_active(self, kind: type[E], gpu: int, seconds: float) -> bool:
        return any(event.active(seconds) for event, _ in self.of(kind, gpu))

    def latest(self, kind: type[E], gpu: int, seconds: float) -> E | None:
        """The active effect of a kind; the last one listed, if there are several."""
        return next((effect for event, effect in reversed([*self.of(kind, gpu)]) if event.active(seconds)), None)

    def accrued(
        self,
        kind: type[E],
        rate: str,
        gpu: int,
        seconds: float,
        counts: Callable[[E], bool] = lambda _effect: True,
        *,
        lifetime: bool = False,
    ) -> float:
        """Sum of an effect's hourly rate over time, for effects accepted by `counts`.

        Args:
            lifetime: since the current card was inserted, and not only since its last reset.
        """
        total, since = 0.0, self._scenario.card_since(gpu, seconds, reset=not lifetime)
        for event, effect in self.of(kind, gpu):
            if counts(effect):
                end = seconds if event.until is None else min(seconds, event.until)
                total += getattr(effect, rate) / 3600.0 * max(0.0, end - max(event.at, since))
        return total

    def latched(self, kind: type[E], count: str, gpu: int, seconds: float, *, lifetime: bool = True) -> int:
        """Sum of a count over all effects that have started by this time, even if they ended; times as in `accrued`."""
        since = self._scenario.card_since(gpu, seconds, reset=not lifetime)
        return sum(int(getattr(effect, count)) for event, effect in self.of(kind, gpu) if since <= event.at <= seconds)

    def lost(self, gpu: int, seconds: float, initialized: float) -> bool:
        """Whether a GPU is lost; it recovers when NVML is initialized (last at `initialized`) after the event's end."""
        return any(
            event.at <= seconds and not (event.until is not None and initialized >= event.until)
            for event in self._losses[gpu]
        )

    def off_the_bus(self, gpu: int, seconds: float) -> bool:
        """Whether the GPU does not respond on PCIe because it is lost."""
        return self.gpu_active(effects.Lost, gpu, seconds)

    def running(self, pid: int, seconds: float) -> bool:
        starts = [event for event, pids in self._starts if pid in pids]
        killed = self.host_active(Reboot, seconds) or any(
            event.active(seconds) for event, pids in self._kills if pid in pids
        )
        if pid in self._of_ranks and (shares := self.shares(self._of_ranks[pid], seconds)) and shares.absent:
            return False
        return not killed and (not starts or any(event.active(seconds) for event in starts))

    def began(self, pid: int, seconds: float) -> float:
        """When a process that runs began, in seconds of scenario time; an hour before it, if nothing started it."""
        starts = [float(event.at) for event, pids in self._starts if pid in pids and event.active(seconds)]
        ends = [event.until for event, pids in self._kills if pid in pids] + [
            each.until for each, _ in self.host(Reboot)
        ]
        return max([-3600.0, *starts, *(float(end) for end in ends if end is not None and end <= seconds)])

    def _resolve(self, gpu: Gpu, index: int, seconds: float) -> GpuConditions:
        active = [event.effect for event in self._by_gpu[index] if event.active(seconds)]
        load = overlay(_NO_LOAD, gpu.load)
        for effect in _kind(Load, active):
            load = overlay(load, effect)
        readings = Readings()
        for written in _kind(Readings, active):
            readings = overlay(readings, written)
        thermal = _kind(effects.ThermalThrottle, active)
        links = _kind(effects.Link, active)
        remaps = _kind(effects.RowRemap, active)
        model = gpu.model
        warm = [effect.celsius for effect in _kind(effects.Ambient, active)]
        warm += [throttle.ambient_celsius for throttle in thermal if throttle.ambient_celsius is not None]
        limits = [effect.watts for effect in _kind(effects.PowerLimit, active)]
        targets = [effect.sm_mhz for effect in _kind(effects.ApplicationClock, active)]
        p2p = [effect.status for effect in _kind(effects.PeerToPeer, active)]
        vbios = [effect.version for effect in _kind(effects.Vbios, active)]
        persistence = [effect.enabled for effect in _kind(effects.PersistenceMode, active)]
        ecc = [effect.enabled for effect in _kind(effects.EccMode, active)]
        slot = gpu.slot
        for change in _kind(effects.SlotChange, active):
            slot = overlay(slot, change)
        recovery = [effect.action for effect in _kind(effects.RecoveryAction, active)]
        return GpuConditions(
            card=gpu,
            load=load,
            readings=readings,
            ambient_celsius=warm[-1] if warm else gpu.ambient_celsius,
            power_limit_watts=limits[-1] if limits else gpu.power_limit_watts or model.power.default_limit,
            sm_target_mhz=targets[-1] if targets else gpu.sm_target_mhz or model.clocks.sm_target,
            slot=slot,
            vbios_version=vbios[-1] if vbios else model.vbios_version,
            persistence_mode=persistence[-1] if persistence else gpu.persistence_mode,
            ecc_mode=ecc[-1] if ecc else model.ecc_on,
            link_width=min([slot.width, model.pcie.width, *(link.width for link in links if link.width)]),
            link_generation=min(
                [slot.generation, model.pcie.generation, *(link.generation for link in links if link.generation)]
            ),
            thermal=tuple(thermal),
            brake=tuple(_kind(effects.PowerBrake, active)),
            miscounted_cap=sum(effect.share for effect in _kind(effects.MiscountedPowerCap, active)),
            frozen_counters=sum({REASONS[effect.reason] for effect in _kind(effects.FrozenThrottleCounter, active)}),
            remap_pending=any(remap.pending for remap in remaps),
            remap_failure=any(remap.failure for remap in remaps),
            repairs=frozenset(
                name
                for repair in _kind(effects.Repair, active)
                for name in ("channel", "tpc", "unrepairable")
                if getattr(repair, name)
            ),
            pages_pending=any(pages.pending for pages in _kind(effects.RetiredPages, active)),
            p2p_status=p2p[-1] if p2p else "ok",
            recovery_action=recovery[-1] if recovery else 0,
            links_slow={link: slow.ratio for slow in _kind(effects.NvlinkSlow, active) for link in slow.links},
            links_down={link: down.state for down in _kind(effects.NvlinkDown, active) for link in down.links},
            mig=_mig_layout([event for event in self._by_gpu[index] if event.active(seconds)]),
            reset_required=bool(_kind(effects.ResetRequired, active)),
            denied=bool(_kind(effects.Denied, active)),
            removed=bool(_kind(effects.Removed, active)),
        )


def _by_kind(events: Iterable[Event]) -> Mapping[type[Any], list[Event]]:
    found: dict[type[Any], list[Event]] = {}
    for event in events:
        found.setdefault(type(event.effect), []).append(event)
    return found


def _mig_layout(active: list[Event]) -> MigLayout | None:
    layouts = [(event.at, event.effect.instances) for event in active if isinstance(event.effect, effects.Mig)]
    if not layouts:
        return None
    since, instances = layouts[-1]
    return MigLayout(since, {i if mig.slot is None else mig.slot: mig for i, mig in enumerate(instances)})


def overlay(base: E, change: Any) -> E:
    """`base` with every non-None field of `change`, an instance of the same dataclass or None."""
    if change is None:
        return base
    given = {
        field.name: value for field in dataclasses.fields(change) if (value := getattr(change, field.name)) is not None
    }
    return dataclasses.replace(base, **given)  # type: ignore[type-var]  # both are dataclasses


def phase(step: int) -> float:
    """A number in [0, 1) for each second: evenly spread, and out of phase with any poll interval."""
    return step * _GOLDEN_RATIO % 1.0


def _kind(kind: type[E], active: list[Any]) -> list[E]:
    return [effect for effect in active if isinstance(effect, kind)]
