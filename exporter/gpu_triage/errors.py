"""The exceptions that this program raises on purpose."""


class GpuTriageError(Exception):
    """Base of every error this program raises on purpose."""


class DocumentError(GpuTriageError):
    """A file that is unreadable or invalid; exit code 2."""

    def __init__(self, *problems: str, reason: str = "malformed") -> None:
        more = len(problems) - 1
        super().__init__(f"{problems[0]} (and {more} more mistake{'s' * (more > 1)})" if more else problems[0])
        self.problems = problems  # one line each, with the file, the key, the problem and the remedy
        self.reason = reason  # snake_case name of the cause (``malformed``, ``missing``, ``too_large``, …)


class ConfigError(DocumentError):
    """An invalid option value, an unknown key or a useless combination; the message names it and the remedy."""


class AddressUnavailable(GpuTriageError):
    """An address can't be listened on now, but perhaps later; the message names it. Exit code 1: retry."""


class ScenarioError(DocumentError):
    """A scenario that doesn't exist or is invalid; the message names the file and the key."""


class BaselineError(DocumentError):
    """A baseline that can't be written, or taken from this host; the message names the next step."""


class RecordingError(DocumentError):
    """A recording that can't be written, or is unreadable or invalid; the message names the file and the next step."""


class OutputNotWritten(GpuTriageError):
    """A file or folder can't be written to the requested path; the message names the path and the cause."""


class ExporterUnreachable(GpuTriageError):
    """A running exporter has no verdict; the message names the exporter, the cause and the next step."""


class PrometheusUnavailable(GpuTriageError):
    """A Prometheus server doesn't respond, or not as expected; the message has the reason. Exit code 2."""


class ReasonedError(GpuTriageError):
    """An error with a cause that is counted, or published as a label."""

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        # Snake_case name of the cause (``driver_not_loaded``, ``no_permission``, ``malformed``, …).
        self.reason = reason
        self.detail = detail  # the system's message, or the problem and the next step


class DetailedError(ReasonedError):
    """An error with a detail that a user understands without the reason."""

    def __str__(self) -> str:
        return self.detail


class DriverUnavailable(ReasonedError):
    """NVML is currently unusable; `reason` is the label of gpu_driver_error_info."""


class DriverReplaced(DriverUnavailable):
    """The kernel driver no longer matches the mapped library: this process must be restarted."""


class ProbeFailed(GpuTriageError):
    """No child process could determine which GPUs answer a new NVML session; the message has the reason."""


class GpuUnavailable(ReasonedError):
    """One GPU doesn't answer; `reason` is the label of gpu_error_info."""


class StateError(DetailedError):
    """The exporter's files in its state directory can't be read or written."""


class LockTaken(GpuTriageError):
    """Another process holds a lock; the message names it, if known."""


class FlightRecorderError(DetailedError):
    """The flight recorder can't write a recording."""


class HostReadFailed(ReasonedError):
    """A procfs or sysfs file is unreadable or can't be parsed."""

    def __init__(self, reason: str, path: object, detail: str) -> None:
        super().__init__(reason, f"{path}: {detail}")
