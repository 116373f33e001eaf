"""Clock of CPUs relative to their maximum. Only selected CPUs are queried, not all.

On kernels before 5.18, reading one CPU's clock can take 20 ms and interrupts that CPU; a host has hundreds of CPUs.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from gpu_triage.driver.kernel.files import MAX_CPUS, parse_count, read_int, read_names, read_text
from gpu_triage.errors import HostReadFailed

_POLICY: Final = re.compile(r"policy[0-9]{1,5}")


def policies(sysfs: Path) -> list[Path]:
    """Folders of the cpufreq policies (groups of CPUs that share a clock, usually one per CPU); empty without cpufreq.

    Source: ``/sys/devices/system/cpu/cpufreq``, https://docs.kernel.org/admin-guide/pm/cpufreq.html
    """
    root = sysfs / "devices" / "system" / "cpu" / "cpufreq"
    try:
        names = read_names(root) or ()
    except HostReadFailed:
        return []
    return [root / name for name in names if _POLICY.fullmatch(name)][:MAX_CPUS]


class CpuFrequencies:
    """Reads CPU clocks; caches the policy of each CPU, which does not change while the host runs."""

    def __init__(self) -> None:
        self._policy_of: Mapping[int, Path] | None = None

    def ratio(self, sysfs: Path, cpu: int) -> float | None:
        """Current clock of a CPU over its maximum, 0-1; None if not reported, as on most virtual machines."""
        if self._policy_of is None:
            self._policy_of = {each: policy for policy in policies(sysfs) for each in _related_cpus(policy)}
        policy = self._policy_of.get(cpu)
        if policy is None:
            return None
        try:
            now, most = read_int(policy / "scaling_cur_freq"), read_int(policy / "cpuinfo_max_freq")
        except HostReadFailed:
            return None
        # If the reported maximum excludes boost, a CPU may exceed it.
        return min(1.0, now / most) if now is not None and most is not None and now > 0 and most > 0 else None


def _related_cpus(policy: Path) -> list[int]:
    try:
        return [parse_count(each) for each in (read_text(policy / "related_cpus") or "").split()]
    except (HostReadFailed, ValueError):
        return []
