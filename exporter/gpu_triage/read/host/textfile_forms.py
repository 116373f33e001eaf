"""What a job's file may contain: the job's own metrics, or those that NCCL Inspector writes for one GPU.

NCCL Inspector is NVIDIA's profiler plugin for NCCL. From NCCL 2.29.3 on, with NCCL_INSPECTOR_PROM_DUMP=1, it writes
``nccl_inspector_metrics_<UUID of the GPU>.prom`` for each GPU of the process.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final

from gpu_triage.read.host import textfile as limits
from gpu_triage.read.host.textfile import INSPECTOR_PREFIX, OWNER, PREFIXES

_CLAIMS: Final = re.compile(
    r"instance|job|job_?id|cluster|drill|service|endpoint|node|nodename|host|hostname|namespace|replica|prometheus"
    r"|gpu|gpu_?(?:id|index)|minor_number|serial|compute_capability|vbios_version|board_part_number"
    r"|owner|user|user_?name|uid|account|pid"
    r"|alertname|alertstate|severity"
    r"|(?:exported|prometheus|gpu|mig|pci|pod|container|kubernetes|workload|slurm)_.*|.*uuid|pod|container|workload",
    re.IGNORECASE,
)
"""Labels that would claim a target, a GPU, an owner or an alert. The owner is determined by the file's location."""

METRIC_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
_INSPECTOR_FILE: Final = re.compile(
    r"nccl_inspector_metrics_([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12})\.prom"
)
_OF_ONE_PROCESS: Final = frozenset({"gpu", "gpu_device_id"})
"""The CUDA index in the process, such as GPU0: if each rank sees only its own GPU, all GPUs have the same."""
_OF_THE_TARGET: Final = frozenset({"node", "hostname", "cluster"})
_OF_ONE_WRITE: Final = frozenset({"timestamp", "coll_sn"})
"""Labels of NCCL 2.29 that change with each write, so that each write would create new series."""
_JOB_NAME: Final = frozenset({"slurm_job"})
_BANDWIDTH: Final = "In GB/s, from NCCL Inspector: geometric mean of its last dump interval (NCCL 2.29: of one)."
_DURATION: Final = "In microseconds, from NCCL Inspector: mean of its last dump interval (NCCL 2.29: of one)."
_INSPECTOR_HELPS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "nccl_bus_bandwidth_gbs": f"Bus bandwidth of collectives. {_BANDWIDTH}",
        "nccl_p2p_bus_bandwidth_gbs": f"Bus bandwidth of sends and receives. {_BANDWIDTH}",
        "nccl_collective_exec_time_microseconds": f"Duration of collectives. {_DURATION}",
        "nccl_p2p_exec_time_microseconds": f"Duration of sends and receives. {_DURATION}",
    }
)
"""NCCL Inspector writes neither HELP nor TYPE. Names that are not here are published without a type."""


class Refused(Exception):
    """A file that is not republished; its argument is the reason, from `textfile.ERRORS`."""


@dataclass(frozen=True, slots=True)
class Form:
    """Names and labels that a file may use, and the labels that the exporter adds to its series."""

    added: Mapping[str, str]
    prefixes: tuple[str, ...] = PREFIXES
    dropped: frozenset[str] = frozenset()  # labels without meaning here
    kept_if: Mapping[str, str] = field(default_factory=dict)  # labels kept only with this value
    helps: Mapping[str, str] = field(default_factory=dict)  # of gauges that have neither HELP nor TYPE

    def check_name(self, name: str) -> None:
        """Check the name of a metric.

        Raises:
            Refused: the name is not allowed.
        """
        if not METRIC_NAME.fullmatch(name):
            raise Refused(limits.MALFORMED)
        # Colons are reserved for recording rules.
        if not name.startswith(self.prefixes) or ":" in name:
            raise Refused(limits.NAME_NOT_ALLOWED)
        if len(name) > limits.MAX_NAME_BYTES:
            raise Refused(limits.NAME_TOO_LONG)

    def keeps(self, name: str, value: str) -> bool:
        """Whether a label is published; one that is dropped has to fit the limits as well.

        Raises:
            Refused: the label is not allowed.
        """
        if name.startswith("__"):
            raise Refused(limits.MALFORMED)
        own = name in self.dropped or name in self.kept_if
        if not own and _CLAIMS.fullmatch(name):
            raise Refused(limits.LABEL_NOT_ALLOWED)
        if len(name) > limits.MAX_NAME_BYTES:
            raise Refused(limits.NAME_TOO_LONG)
        if len(value.encode()) > limits.MAX_VALUE_BYTES:
            raise Refused(limits.VALUE_TOO_LONG)
        return not own or self.kept_if.get(name) == value

    @property
    def most_labels(self) -> int:
        """How many labels a series may have in the file; the owner is not counted."""
        return limits.MAX_LABELS + 1 - len(self.added)


def of_a_job(owner: str) -> Form:
    return Form({OWNER: owner})


def of_nccl_inspector(owner: str, gpu: str, uuid: str) -> Form:
    """The form of an Inspector file, which describes this GPU, given by its NVML index and UUID.

    A job can write any job ID; it is published only if the file is in the folder of that job.
    """
    return Form(
        {"gpu": gpu, "uuid": uuid, OWNER: owner},
        prefixes=(INSPECTOR_PREFIX,),
        dropped=_OF_ONE_PROCESS | _OF_THE_TARGET | _OF_ONE_WRITE | _JOB_NAME,
        kept_if={"slurm_job_id": owner},
        helps=_INSPECTOR_HELPS,
    )


def inspected_uuid(file_name: str) -> str | None:
    """UUID of the GPU, as NVML writes it, that an Inspector file describes; None if the file is not one."""
    found = _INSPECTOR_FILE.fullmatch(file_name)
    return f"GPU-{found[1]}" if found else None
