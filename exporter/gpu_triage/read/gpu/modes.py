"""Modes of a GPU: persistence, MIG, compute, virtualization; a vGPU's license; the requested recovery action."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Final

from gpu_triage.driver.nvml.inquiry import Inquiry
from gpu_triage.driver.nvml.session import version_numbers
from gpu_triage.driver.nvml.structs import PASSED_THROUGH_MODE, VGPU_MODE, licensed_features
from gpu_triage.read.metrics.contract import GpuCollector, GpuRound
from gpu_triage.read.metrics.metric import ANY, Tier, gpu_gauge, gpu_info

COMPUTE_MODES: Final = {0: "default", 1: "exclusive_thread", 2: "prohibited", 3: "exclusive_process"}
"""nvmlComputeMode_t to label."""

GPU_PERSISTENCE_MODE = gpu_gauge(
    "1 when the driver stays initialized without clients, 0 when not.", source="nvmlDeviceGetPersistenceMode"
)
GPU_MIG_MODE = gpu_gauge(
    "1 when the GPU is partitioned by MIG, 0 when not; absent without MIG support.", source="nvmlDeviceGetMigMode"
)
GPU_COMPUTE_MODE_INFO = gpu_info(
    "Who may open contexts: default, exclusive_thread, prohibited or exclusive_process.",
    labels={"mode": COMPUTE_MODES.values()},
    source="nvmlDeviceGetComputeMode",
)
GPU_VIRTUALIZATION_MODE = gpu_gauge(
    "How the GPU is virtualized: {states}. With 1 and 2, this host is a virtual machine; with 3 and 4, it serves some. "
    "Absent if the driver does not report it.",
    states=dict(enumerate(("none", "passed through", "vGPU", "host of vGPUs", "host of vSGA"))),
    source="nvmlDeviceGetVirtualizationMode",
    default_samples=lambda sample: sample.value > 0,
)
GPU_MEMORY_OS_MANAGED = gpu_gauge(
    "1 if the operating system manages the GPU's memory as a NUMA node (GH200, GB200, GB300, by default before driver "
    "615): used memory includes the page cache. 0, only in profile full, if not. Absent if unknown, as with MIG.",
    source="nvmlDeviceGetNumaNodeId",
    default_samples=lambda sample: sample.value > 0,
)
IN_VIRTUAL_MACHINES: Final = (PASSED_THROUGH_MODE, VGPU_MODE)
"""Modes of a GPU in a virtual machine."""


@dataclass(frozen=True, slots=True)
class ModesReading:
    persistence: Annotated[bool | None, GPU_PERSISTENCE_MODE]
    mig: Annotated[bool | None, GPU_MIG_MODE]
    compute: Annotated[str | None, GPU_COMPUTE_MODE_INFO]
    virtualization: Annotated[int | None, GPU_VIRTUALIZATION_MODE]
    memory_os_managed: Annotated[bool | None, GPU_MEMORY_OS_MANAGED]


def read_modes(gpu: GpuRound) -> ModesReading:
    persistence = gpu.inquiry.ask("nvmlDeviceGetPersistenceMode")
    compute = gpu.inquiry.ask("nvmlDeviceGetComputeMode")
    mig = mig_mode(gpu.inquiry)
    return ModesReading(
        persistence=gpu.inquiry.flag(persistence),
        mig=mig,
        compute=None if compute is None else COMPUTE_MODES.get(compute, f"unknown_{compute}"),
        virtualization=virtualization_mode(gpu.inquiry),
        memory_os_managed=None if mig else _memory_os_managed(gpu.inquiry),
    )


def _memory_os_managed(inquiry: Inquiry) -> bool | None:
    """Whether the GPU's memory is a NUMA node of the kernel; with MIG, the instances' is. None if unknown.

    The addressing mode does not tell: it is ATS also in CDMM mode, in which the driver manages the memory.
    """
    before = len(inquiry.failures)
    node = inquiry.ask("nvmlDeviceGetNumaNodeId")
    return None if len(inquiry.failures) > before else node is not None and node >= 0


def virtualization_mode(inquiry: Inquiry) -> int | None:
    """A state of gpu_virtualization_mode (nvmlDeviceGetVirtualizationMode); None if not reported."""
    return inquiry.within(inquiry.ask("nvmlDeviceGetVirtualizationMode"), 0, max(GPU_VIRTUALIZATION_MODE.states))


def mig_mode(inquiry: Inquiry) -> bool | None:
    """Whether MIG mode is enabled now (nvmlDeviceGetMigMode); None if unsupported."""
    mode = inquiry.ask("nvmlDeviceGetMigMode")  # [now, after the next reset]
    return inquiry.flag(mode[0]) if mode else None


MODES = GpuCollector("persistence, MIG, compute, virtualization", Tier.SLOW, lambda _config: read_modes)


GPU_VGPU_LICENSE_STATE = gpu_gauge(
    "License of a vGPU in a virtual machine, by licensed product: {states}. NVML reports only the first two. Absent "
    "on other GPUs.",
    labels={"product": ANY},
    states={0: "unlicensed", 1: "licensed", 2: "unlicensed, not yet restricted", 3: "unlicensed, restricted"},
    source="nvmlDeviceGetVirtualizationMode, nvmlDeviceGetGridLicensableFeatures",
)

LICENSED: Final = GPU_VGPU_LICENSE_STATE.value_of("licensed")
UNLICENSED: Final = GPU_VGPU_LICENSE_STATE.value_of("unlicensed")


@dataclass(frozen=True, slots=True)
class VgpuLicenseReading:
    """License state by product, as in gpu_vgpu_license_state; empty on GPUs that are not vGPUs."""

    states: Annotated[Mapping[str, int], GPU_VGPU_LICENSE_STATE]


def read_vgpu_license(gpu: GpuRound) -> VgpuLicenseReading:
    if virtualization_mode(gpu.inquiry) != VGPU_MODE:
        return VgpuLicenseReading({})
    features = licensed_features(gpu.inquiry)
    return VgpuLicenseReading({product: LICENSED if licensed else UNLICENSED for product, licensed in features.items()})


VGPU_LICENSE = GpuCollector("the license of a vGPU", Tier.SLOW, lambda _config: read_vgpu_license)


RECOVERY_ACTION_FIELD: Final = 230  # NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
_ACTIONS: Final = (
    *("nothing", "GPU reset", "node reboot", "drain peer-to-peer work", "drain and reset"),
    *("recover the IMEX domain", "reset the bus", "reboot the system"),
)
_MOST_ACTION: Final = 255
"""Newer drivers may define more actions than gpu_recovery_action names; values beyond this are invalid."""

GPU_RECOVERY_ACTION = gpu_gauge(
    "Recovery action the driver requests for this GPU: {states}. Absent before driver 570; driver 580's 5 is 6 here.",
    states=dict(enumerate(_ACTIONS)),
    source="field 230",
)

NO_RECOVERY: Final = GPU_RECOVERY_ACTION.value_of("nothing")
DRAIN_AND_RESET: Final = GPU_RECOVERY_ACTION.value_of("drain and reset")
"""The action that can wait until the GPU's jobs are done."""
_RECOVER_IMEX: Final = GPU_RECOVERY_ACTION.value_of("recover the IMEX domain")
_IMEX_SINCE: Final = (590,)
"""NVML_GPU_RECOVERY_ACTION_GPU_RESET_BUS is 5 in NVIDIA's pynvml 13.580, 5 has no name in 13.590, and
…_RECOVER_IMEX_DOMAIN is 5 from NVML 595 on; …_BUS_RESET and …_SYSTEM_REBOOT came as 6 and 7 with 615."""


@dataclass(frozen=True, slots=True)
class RecoveryReading:
    action: Annotated[int | None, GPU_RECOVERY_ACTION]


def read_recovery(gpu: GpuRound) -> RecoveryReading:
    inquiry = gpu.inquiry
    asked = inquiry.fields((RECOVERY_ACTION_FIELD,)).get(RECOVERY_ACTION_FIELD)
    action = inquiry.within(asked, 0, _MOST_ACTION)
    if action == _RECOVER_IMEX and () < version_numbers(gpu.versions.driver) < _IMEX_SINCE:
        action = GPU_RECOVERY_ACTION.value_of("reset the bus")
    return RecoveryReading(None if action is None else int(action))


RECOVERY = GpuCollector("recovery action the driver requests", Tier.MEDIUM, lambda _config: read_recovery)
