"""Everything this program raises on purpose.

::

    GpuTriageError
    ├── ConfigError           a flag, environment variable or file key that cannot be used; exit code 2
    ├── ScenarioError         a simulated host's description that cannot be used; exit code 2
    ├── RecordingError        a recording of a host that cannot be written or read; exit code 2
    ├── HistoryNotWritten     a simulated host's history cannot be written where it was asked for; exit code 1
    ├── RulesNotWritten       alert rules cannot be written where they were asked for; exit code 1
    ├── DriverUnavailable     NVML cannot be used at all now; `reason` is the label of gpu_driver_error_info
    │   └── DriverReplaced    the driver was upgraded underneath this process: only a restart helps
    ├── GpuUnavailable        one GPU does not answer; `reason` is the label of gpu_error_info
    ├── BaselineError         a baseline that cannot be read, written or taken; `reason` is counted; exit code 2
    ├── StateError            the state directory cannot be read or written; `reason` is counted
    └── HostReadFailed        a procfs or sysfs file cannot be read or understood; `reason` is counted
"""

from __future__ import annotations


class GpuTriageError(Exception):
    """Base of every error this program raises on purpose."""


class ConfigError(GpuTriageError):
    """An option's value, an unknown key or a useless combination; the message names it and what would be right."""


class ScenarioError(GpuTriageError):
    """A scenario that does not exist or cannot be understood; the message names the file and the key."""


class RecordingError(GpuTriageError):
    """A recording that cannot be written, read or understood; the message names the file and the next step."""


class HistoryNotWritten(GpuTriageError):
    """A simulated host's history cannot be written where it was asked for; the message names the cause."""


class RulesNotWritten(GpuTriageError):
    """Alert rules cannot be written where they were asked for; the message names the cause."""


class DriverUnavailable(GpuTriageError):
    """NVML cannot be used at all.

    Attributes:
        reason: snake_case name of the cause (``library_not_found``, ``driver_not_loaded``, …).
        detail: what the system said, for the log.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class DriverReplaced(DriverUnavailable):
    """The kernel driver no longer matches the mapped library: this process must be restarted."""


class GpuUnavailable(GpuTriageError):
    """One GPU does not answer.

    Attributes:
        reason: snake_case name of the cause (``lost``, ``reset_required``, ``no_permission``, …).
        detail: which call said so, for the log.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class BaselineError(GpuTriageError):
    """A baseline that cannot be read, written or taken from this host.

    Attributes:
        reason: snake_case name of the cause (``missing``, ``malformed``, ``not_whole``, …).
        detail: what is wrong and what to do next.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class StateError(GpuTriageError):
    """What the exporter keeps in its state directory cannot be read or written.

    Attributes:
        reason: snake_case name of the cause (``no_permission``, ``no_space``, ``malformed``, …).
        detail: what is wrong and what to do next.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(detail)
        self.reason = reason
        self.detail = detail


class HostReadFailed(GpuTriageError):
    """A kernel file cannot be read or understood.

    Attributes:
        reason: snake_case name of the cause (``missing``, ``no_permission``, ``malformed``, …).
    """

    def __init__(self, reason: str, path: object, detail: str) -> None:
        super().__init__(f"{reason}: {path}: {detail}")
        self.reason = reason
