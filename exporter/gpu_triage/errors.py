"""Everything this program raises on purpose."""

from __future__ import annotations


class GpuTriageError(Exception):
    """Base of every error this program raises on purpose."""


class DocumentError(GpuTriageError):
    """A file that cannot be read or used; exit code 2.

    Attributes:
        problems: one line each: the file, the key, what is wrong, and what is right.
        reason: snake_case name of the cause (``malformed``, ``missing``, ``too_large``, …).
    """

    def __init__(self, *problems: str, reason: str = "malformed") -> None:
        more = len(problems) - 1
        super().__init__(f"{problems[0]} (and {more} more mistake{'s' * (more > 1)})" if more else problems[0])
        self.problems = problems
        self.reason = reason


class ConfigError(DocumentError):
    """An option's value, an unknown key or a useless combination; the message names it and what would be right."""


class ScenarioError(DocumentError):
    """A scenario that does not exist or cannot be understood; the message names the file and the key."""


class RecordingError(DocumentError):
    """A recording that cannot be written, read or understood; the message names the file and the next step."""


class HistoryNotWritten(GpuTriageError):
    """A simulated host's history cannot be written where it was asked for; the message names the cause."""


class ExporterUnreachable(GpuTriageError):
    """A running exporter has no verdict to give; the message names it, the cause and the next step."""


class PrometheusUnavailable(GpuTriageError):
    """A Prometheus does not answer, or not with what was asked for; the message says why. Exit code 2."""


class RulesNotWritten(GpuTriageError):
    """Alert rules cannot be written where they were asked for; the message names the cause."""


class ReasonedError(GpuTriageError):
    """An error whose cause is counted, or published as a label.

    Attributes:
        reason: snake_case name of the cause (``driver_not_loaded``, ``no_permission``, ``malformed``, …).
        detail: what the system said, or what is wrong and what to do next.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail


class DriverUnavailable(ReasonedError):
    """NVML cannot be used at all now; `reason` is the label of gpu_driver_error_info."""


class DriverReplaced(DriverUnavailable):
    """The kernel driver no longer matches the mapped library: this process must be restarted."""


class ProbeFailed(GpuTriageError):
    """No other process could find out which GPUs answer a new NVML session; the message says why."""


class GpuUnavailable(ReasonedError):
    """One GPU does not answer; `reason` is the label of gpu_error_info."""


class BaselineError(ReasonedError):
    """A baseline that cannot be read, written or taken from this host; exit code 2."""

    def __str__(self) -> str:
        return self.detail


class StateError(ReasonedError):
    """What the exporter keeps in its state directory cannot be read or written."""

    def __str__(self) -> str:
        return self.detail


class LockTaken(GpuTriageError):
    """Another process has a lock; the message says which, as far as that is known."""


class FlightRecorderError(ReasonedError):
    """The flight recorder cannot write a recording."""

    def __str__(self) -> str:
        return self.detail


class HostReadFailed(ReasonedError):
    """A procfs or sysfs file cannot be read or understood."""

    def __init__(self, reason: str, path: object, detail: str) -> None:
        super().__init__(reason, f"{path}: {detail}")
