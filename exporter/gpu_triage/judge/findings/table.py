"""The table of all kinds of findings."""

from types import MappingProxyType
from typing import Final

from gpu_triage.judge.findings.check import Action, Area, Check, Measure, Severity, Unit
from gpu_triage.judge.findings.kinds.clocks_findings import CLOCKS
from gpu_triage.judge.findings.kinds.driver_findings import DRIVER
from gpu_triage.judge.findings.kinds.health_findings import HEALTH
from gpu_triage.judge.findings.kinds.host_findings import HOST
from gpu_triage.judge.findings.kinds.links_findings import PCIE, PEERS
from gpu_triage.judge.findings.kinds.work_findings import BASELINE, SETTINGS, WORK
from gpu_triage.read.xid.codes import XID_CODES

__all__ = ("BY_CODE", "CHECKS", "EXPLAINED_BY", "Action", "Area", "Check", "Measure", "Severity", "Unit", "xid_check")

CHECKS: Final[tuple[Check, ...]] = (*DRIVER, *HEALTH, *CLOCKS, *PCIE, *BASELINE, *PEERS, *HOST, *WORK, *SETTINGS)
"""All rows, in the playbook's order."""

EXPLAINED_BY: Final = MappingProxyType(
    {
        "thermal.sw": ("thermal.hw",),
        "thermal.margin": ("thermal.hw", "thermal.sw"),
        "power.hw_slowdown": ("power.brake",),
        "clock.straggler": (
            *("thermal.hw", "thermal.sw", "power.brake", "power.hw_slowdown", "power.cap", "clock.policy"),
        ),
        "work.hung": ("work.blocked",),
        "memory.starved": ("memory.swapping",),
        "storage.starved": ("host.hung_task",),
        "work.held_idle": ("work.blocked",),
        "pcie.width_idle": ("pcie.width",),
        "pcie.width_from_boot": ("pcie.width",),
        "pcie.width_built": ("pcie.width",),
        "pcie.below_peers": ("pcie.width", "pcie.width_idle", "pcie.width_from_boot"),
        "driver.init_failed": ("driver.power_cables",),
        "memory.unrepairable": ("memory.row_remap_failure",),
        "ecc.corrected": ("ecc.corrected_rising",),
        "host.memory_errors": ("host.memory_errors_rising",),
        "nvlink.down": ("nvlink.flapping",),
        "nvlink.bit_errors": ("nvlink.recovering",),
        "work.allocated_unused": ("work.allocated_idle",),
        "memory.limited": ("memory.oom_killed",),
    }
)
"""Findings caused by another one about the same GPU, or both about the host.

The judge holds a finding back while a cause that alerts as urgently is pending or confirmed: an alert fires for the
cause, and none for a symptom that is known earlier. Alertmanager inhibits what Prometheus judges.
"""

BY_CODE: Final = MappingProxyType({check.code: check for check in CHECKS})
_FATAL_IN_TEXT: Final = frozenset(str(xid.code) for xid in XID_CODES.values() if xid.fatal_in_text)


def xid_check(xid: str, fatal: str = "") -> Check:
    """Return the check for an Xid, by code and severity in the kernel log (`fatal`: ``true``, ``false`` or empty)."""
    if xid in _FATAL_IN_TEXT and fatal != "true":
        return BY_CODE["xid.nonfatal"]
    return BY_CODE.get(f"xid.{xid}", BY_CODE["xid.unlisted"])
