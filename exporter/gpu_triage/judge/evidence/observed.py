"""Whether the condition of a finding can currently be observed."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from gpu_triage.judge.evidence import thresholds
from gpu_triage.judge.evidence.gpu import GpuEvidence
from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.judge.evidence.past import DAY_SECONDS
from gpu_triage.judge.evidence.series import Evidence
from gpu_triage.judge.findings.finding import Finding
from gpu_triage.judge.findings.table import CHECKS
from gpu_triage.read.gpu import presence
from gpu_triage.read.host.services import FABRIC_MANAGER, GPU_HOST_SERVICE_RUNNING
from gpu_triage.read.registry import METRICS

_BY_NAME: Final = {spec.name: spec for spec in METRICS}
READS: Final = MappingProxyType({check.code: _BY_NAME[check.reads] for check in CHECKS if check.reads})
"""The metric each finding is based on, which healthy GPUs and hosts report too. Without it nothing can be concluded."""

_NEEDS_SECONDS: Final[Mapping[str, float]] = {
    "ecc.corrected_rising": DAY_SECONDS,
    "host.memory_errors_rising": DAY_SECONDS,
    "work.allocated_idle": thresholds.ALLOCATED_IDLE_SECONDS,
    "network.port_flapping": thresholds.PORT_DOWNS_SECONDS,
}
"""History needed to conclude that the finding is over; a process that just started lacks it."""

_WITHOUT_ANSWER: Final = ("xid.", "gpu.", "baseline.", "driver.")
"""Areas of GPU findings that do not need the GPU to respond: they come from the kernel log, the exporter or a file."""

_OF_DRIVER: Final = ("driver.", "gpu.missing")
_OF_ANSWERING_GPUS: Final = ("fabric.unhealthy", "work.collective_hang")


def observable(host: HostEvidence, finding: Finding) -> bool:
    """Whether the data behind the finding is being observed. An idle GPU shows nothing that only appears under load."""
    code = finding.check.code
    if host.memory.seconds < _NEEDS_SECONDS.get(code, 0.0):
        return False
    gpu = host.known_gpus.of(finding)
    if gpu is None and finding.gpu is None:
        return _of_host(host, code)
    if host.released:
        return False
    if gpu is None:
        # If none is missing, it was removed, or given to a virtual machine.
        return host.driver_error is None and host.has(presence.GPU_DEVICES, source="nvml") and host.missing_gpus <= 0
    return _of_gpu(gpu, finding) and (code != "clock.straggler" or any(gpu in peers for peers in host.busy_models))


def last_reset(host: HostEvidence, finding: Finding) -> float | None:
    """Return the monotonic second of the last reset of the finding's GPU.

    For findings about the driver and missing GPUs, it is the last reset of any GPU: loading the driver resets them all,
    and findings that a reset fixes then end together. None for other host findings, a lost GPU, and without a reset.
    """
    gpu = host.known_gpus.of(finding)
    if gpu is None and finding.check.code.startswith(_OF_DRIVER):
        gpus = tuple(host.gpus)
    else:
        gpus = () if gpu is None else (gpu,)
    wall = max((each.reset_at for each in gpus if each.was_read), default=0.0)
    return wall - host.at.wall + host.at.monotonic if wall else None


def _of_gpu(gpu: GpuEvidence, finding: Finding) -> bool:
    code = finding.check.code
    if code.startswith(_WITHOUT_ANSWER):
        return True
    if not gpu.was_read or not _was_read(gpu, code):
        return False
    if code == "pcie.generation_low":
        return gpu.works_awake and not gpu.recent.loaded  # under load, another finding covers it
    return not finding.check.under_load or (gpu.under_load and gpu.recent.under_load)


def _of_host(host: HostEvidence, code: str) -> bool:
    if code == "gpu.released":
        return True
    if code.startswith(_OF_DRIVER) and host.released:
        return False
    if code == "gpu.missing" and host.driver_error is not None:
        return False  # no GPUs are counted without the driver
    if code in _OF_ANSWERING_GPUS and not host.answering:
        return False
    if code == "fabric.service_down":
        return host.has(GPU_HOST_SERVICE_RUNNING, service=FABRIC_MANAGER)
    return _was_read(host, code)


def _was_read(evidence: Evidence, code: str) -> bool:
    """Whether the finding's metric is present; a metric that cannot be read is withdrawn."""
    spec = READS.get(code)
    return spec is None or evidence.has(spec)
