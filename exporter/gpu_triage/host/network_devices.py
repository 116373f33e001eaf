"""Which network devices are read, and how fast those are that do not say so: what the operator chose."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from gpu_triage.config import Config, LineRate


@dataclass(frozen=True, slots=True)
class NetworkDevices:
    """The operator's choice, by the kernel's names of interfaces and of InfiniBand and RoCE adapters.

    Attributes:
        include: patterns of those that are read; all are if there is none.
        exclude: patterns of those that are not; beats `include`.
        rates: patterns of devices and their line rates; the first that matches counts.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    rates: tuple[LineRate, ...] = ()

    def chosen(self, name: str) -> bool:
        """Whether a device is to be read at all."""
        included = not self.include or any(fnmatchcase(name, pattern) for pattern in self.include)
        return included and not any(fnmatchcase(name, pattern) for pattern in self.exclude)

    def line_rate(self, name: str) -> int | None:
        """The line rate that was given for a device, bytes per second; None where none was."""
        return next((rate.bytes_per_second for rate in self.rates if fnmatchcase(name, rate.device)), None)


EVERY_DEVICE = NetworkDevices()


def network_devices(config: Config) -> NetworkDevices:
    """The choice of a configuration."""
    return NetworkDevices(config.network_device_include, config.network_device_exclude, config.network_line_rate)
