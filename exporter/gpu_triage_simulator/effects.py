"""What can happen to a simulated GPU: one frozen dataclass per kind of effect, as written in scenario files.

An effect is active from its event's ``at`` to its ``until``, or indefinitely without ``until``. The workload on a GPU,
the effect ``load``, has its own file.
"""

from dataclasses import dataclass
from typing import Annotated, Final, Literal

from gpu_triage.documents import Pattern, Range
from gpu_triage.documents.pcie_values import Generation, Width
from gpu_triage.read.gpu.fabric import (
    FABRIC_FAULTS,
    FABRIC_JOINED,
    GPU_FABRIC_CONFIGURATION,
    GPU_FABRIC_HEALTH,
    GPU_FABRIC_STATE,
)
from gpu_triage.read.gpu.modes import GPU_RECOVERY_ACTION
from gpu_triage.read.gpu.topology import P2P_STATUSES
from gpu_triage_simulator.gauges import COUNTED_NAMES, PULSED_REASONS, PULSED_UTILIZATION
from gpu_triage_simulator.model import ModelName
from gpu_triage_simulator.schema import Amount, Count, Ratio, one_of

FabricState = Annotated[int, Range(0, max(GPU_FABRIC_STATE.states))]
FabricHealth = Annotated[int, Range(0, max(GPU_FABRIC_HEALTH.states))]
_HEALTHY: Final = GPU_FABRIC_HEALTH.value_of("healthy")


@dataclass(frozen=True, slots=True)
class Fabric:
    """The NVSwitch fabric has a fault."""

    state: FabricState = FABRIC_JOINED  # a state of gpu_fabric_state; 0 if the driver reports no fabric
    health: FabricHealth = _HEALTHY  # a state of gpu_fabric_health; 0 if the driver has no summary
    faults: tuple[Annotated[str, one_of(FABRIC_FAULTS)], ...] = ()  # in the names of gpu_fabric_fault
    # a state of gpu_fabric_configuration; 0 if the driver does not report it
    configuration: Annotated[int, Range(0, max(GPU_FABRIC_CONFIGURATION.states))] = 0
    # cluster_uuid, clique: of a multi-host fabric
    cluster_uuid: Annotated[str, Pattern(r"([0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})?", "a UUID")] = ""
    clique: Count = 0


Profile = Annotated[int, Range(0, 254)]


@dataclass(frozen=True, slots=True)
class PowerProfiles:
    requested: tuple[Profile, ...]  # numbers of NVML_POWER_PROFILE_*
    enforced: tuple[Profile, ...]  # the subset that the driver enforces


@dataclass(frozen=True, slots=True)
class VgpuLicense:
    """The host is a virtual machine, and the GPU is a vGPU."""

    licensed: bool  # whether it has a license
    product: str = "NVIDIA Virtual Compute Server"  # the licensed product


PositiveAmount = Annotated[float, Range(0.001, 1e18)]
Mhz = Annotated[int, Range(1, 20_000)]
NvlinkNumber = Annotated[int, Range(0, 17)]


@dataclass(frozen=True, slots=True)
class ThermalThrottle:
    """The GPU is too hot and throttles for a share (`duty`) of the time."""

    source: Literal["hw", "sw"]  # hw (the board's own protection) or sw (the driver's)
    sm_clock_mhz: Mhz  # clock while throttled
    duty: Ratio = 1.0
    ambient_celsius: float | None = None  # temperature at the GPU's air inlet while the effect is active


@dataclass(frozen=True, slots=True)
class Ambient:
    """The temperature at the GPU's air inlet changes; the GPU's temperature follows from the thermal model."""

    celsius: Annotated[float, Range(-40.0, 120.0)]


@dataclass(frozen=True, slots=True)
class PowerLimit:
    """The enforced power limit is set to `watts`."""

    watts: PositiveAmount
    # limit requested from the driver, if the board's controller enforces a different one
    requested_watts: PositiveAmount | None = None


@dataclass(frozen=True, slots=True)
class MiscountedPowerCap:
    """The driver's power cap counter grows although the GPU is not capped and the throttle bit is not set.

    Seen on GeForce cards with drivers 591 to 610, and on an L40S.
    """

    share: Ratio  # seconds that the counter gains per second, in addition to time at the cap


@dataclass(frozen=True, slots=True)
class FrozenThrottleCounter:
    """The driver's counter of a throttle reason does not grow while the reason is reported.

    This happens if a new driver reassigns the counter's field ID.
    """

    reason: Annotated[str, one_of(COUNTED_NAMES)]  # a throttle reason that the driver counts


@dataclass(frozen=True, slots=True)
class PowerBrake:
    """The board's external power brake is asserted for a share (`duty`) of the time."""

    sm_clock_mhz: Mhz
    duty: Ratio = 1.0


@dataclass(frozen=True, slots=True)
class ApplicationClock:
    """The application clock of the SMs is set."""

    sm_mhz: Mhz


@dataclass(frozen=True, slots=True)
class Link:
    """The PCIe link runs at most at this width and generation."""

    width: Width | None = None
    generation: Generation | None = None


@dataclass(frozen=True, slots=True)
class SlotChange:
    """The slot has different properties, as after a motherboard swap: its maximum link, and its NUMA node."""

    width: Width | None = None
    generation: Generation | None = None
    node: Annotated[int, Range(-1, 63)] | None = None


@dataclass(frozen=True, slots=True)
class Vbios:
    version: str


@dataclass(frozen=True, slots=True)
class PersistenceMode:
    enabled: bool


@dataclass(frozen=True, slots=True)
class EccMode:
    """ECC is on or off, as after a reboot that switched it."""

    enabled: bool


@dataclass(frozen=True, slots=True)
class PcieErrors:
    """The link replays packets and reports AER errors, at a steady rate per hour."""

    replays_per_hour: Amount = 0.0
    correctable_per_hour: Amount = 0.0
    nonfatal_per_hour: Amount = 0.0
    fatal_per_hour: Amount = 0.0
    # which end of the link sees the errors: the GPU, the port above it, or both
    seen_by: Literal["both", "gpu", "port"] = "both"


@dataclass(frozen=True, slots=True)
class EccErrors:
    """ECC errors: corrected ones at a steady rate, uncorrected ones all at the start."""

    corrected_per_hour: Amount = 0.0
    uncorrected: Count = 0


@dataclass(frozen=True, slots=True)
class RowRemap:
    """Rows are remapped, or remapping failed."""

    correctable: Count = 0
    uncorrectable: Count = 0
    pending: bool = False
    failure: bool = False


@dataclass(frozen=True, slots=True)
class Repair:
    """A repair of a memory channel or a TPC waits for a reset; or memory cannot be repaired."""

    channel: bool = False
    tpc: bool = False
    unrepairable: bool = False


@dataclass(frozen=True, slots=True)
class RetiredPages:
    """Pages are retired (before Ampere)."""

    single_bit: Count = 0
    double_bit: Count = 0
    pending: bool = False


@dataclass(frozen=True, slots=True)
class PeerToPeer:
    """Pairs with this GPU have this P2P status instead of ok."""

    status: Annotated[str, one_of(status for status in P2P_STATUSES.values() if status != "ok")]


@dataclass(frozen=True, slots=True)
class Lost:
    """The GPU falls off the bus and stays lost until NVML is reinitialized after the event's end."""

    # xid, message: what the driver logs, besides "GPU has fallen off the bus"
    xid: Annotated[int, Range(1, 999)] = 79
    message: str | None = None
    # source of the report: the kernel log, NVML's events, or both
    reported_by: Literal["both", "kmsg", "nvml"] = "both"


@dataclass(frozen=True, slots=True)
class ResetRequired: ...


@dataclass(frozen=True, slots=True)
class Hang:
    """Calls on the GPU hang; with `function`, only calls of that function, even if it does not take a GPU."""

    function: str | None = None


@dataclass(frozen=True, slots=True)
class Slow:
    """Each call on the GPU takes this long."""

    milliseconds: PositiveAmount


@dataclass(frozen=True, slots=True)
class CallError:
    """One NVML function returns an error, named as in NVML without its prefix (``UNKNOWN``).

    A function that does not take a GPU fails whichever GPU the event lists.
    """

    function: str
    code: str


@dataclass(frozen=True, slots=True)
class Denied:
    """The GPU's handle is denied (NO_PERMISSION), although NVML counts the GPU."""


@dataclass(frozen=True, slots=True)
class Removed:
    """The GPU is gone from the bus; NVML no longer counts it after reinitialization."""


@dataclass(frozen=True, slots=True)
class ReplaceGpu:
    """The card is replaced by a new one of this model, with its own identity, in the same slot.

    Workload and ambient temperature stay the same; every other effect that started earlier ends with the old card.
    """

    model: ModelName


@dataclass(frozen=True, slots=True)
class GpuReset:
    """The GPU is reset, as with ``nvidia-smi --gpu-reset``: it recovers, and its counters start from zero.

    Aggregate error counts, remapped rows and the identity stay; processes on it are for `kill` to end.
    """


@dataclass(frozen=True, slots=True)
class RecoveryAction:
    """The driver requests an action, a state of gpu_recovery_action."""

    action: Annotated[int, Range(1, max(GPU_RECOVERY_ACTION.states))]


@dataclass(frozen=True, slots=True)
class NvlinkDown:
    """NVLink links carry no traffic."""

    links: tuple[NvlinkNumber, ...]
    state: Literal[0, 2, 3] = 0  # as reported by the driver: 0 inactive, 2 asleep, 3 traffic disabled


@dataclass(frozen=True, slots=True)
class NvlinkSlow:
    """NVLink links have a share of their line rate."""

    links: tuple[NvlinkNumber, ...]
    ratio: Annotated[float, Range(0.01, 1.0)] = 0.5


@dataclass(frozen=True, slots=True)
class NvlinkErrors:
    """NVLink links count errors, each at a steady rate per hour."""

    links: tuple[NvlinkNumber, ...]
    replay_per_hour: Amount = 0.0
    recovery_per_hour: Amount = 0.0
    recovery_failed_per_hour: Amount = 0.0
    crc_per_hour: Amount = 0.0


@dataclass(frozen=True, slots=True)
class Pulses:
    """Short pulses at random times, one in each period, too short to affect clocks, power or temperature.

    Avoid periods that are multiples of a poll interval: readings would then hit the same few phases of every period.
    """

    # what is pulsed: kernel activity (utilization), or a throttle reason
    of: Annotated[str, one_of((PULSED_UTILIZATION, *PULSED_REASONS))]
    milliseconds: Annotated[float, Range(1, 60_000)]  # length of a pulse; shorter than its period
    per_minute: Annotated[float, Range(0.01, 600)]
    seed: Count = 1  # of the random times


@dataclass(frozen=True, slots=True)
class Xid:
    """The driver reports an Xid when the event starts."""

    code: Annotated[int, Range(1, 999)]  # the Xid
    message: str | None = None  # the text after it in the kernel log; by default what the driver writes
    fatal: bool = True  # whether an NVLink 5 Xid (144 to 150) is logged as Fatal or Nonfatal, unless there is a message
    reported_by: Literal["both", "kmsg", "nvml"] = "both"  # as in Lost
    times: Annotated[int, Range(1, 10_000)] = 1  # number of reports, all at once


@dataclass(frozen=True, slots=True, repr=False)
class MigInstance:
    """A MIG device: a compute instance on a GPU instance."""

    # in the form nvidia-smi uses; its memory is that of its GPU instance
    profile: Annotated[str, Pattern(r"([1-7]c\.)?[1-7]g\.[1-9]\d*gb(\+me)?", 'a MIG profile such as "1g.10gb"')]
    # gi, ci: IDs of its GPU instance and its compute instance
    gi: Annotated[int, Range(0, 14)]
    ci: Annotated[int, Range(0, 6)] = 0
    activity: Ratio = 0.0  # utilization of its GPU instance when the GPU's load is 1
    slot: Annotated[int, Range(0, 6)] | None = None  # its MIG device index; by default its position in the list

    def __repr__(self) -> str:
        return f"{self.profile} as {self.gi}/{self.ci}"


@dataclass(frozen=True, slots=True)
class Mig:
    """MIG mode is on, and the GPU is partitioned into these instances; the last such effect in the file wins."""

    instances: tuple[MigInstance, ...] = ()
