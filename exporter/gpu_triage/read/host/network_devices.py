"""Operator's selection of network devices, and configured line rates of devices that do not report them."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from gpu_triage.options.config import Config, LineRate


@dataclass(frozen=True, slots=True)
class NetworkDevices:
    """Selected devices, by kernel names of interfaces and of InfiniBand and RoCE adapters.

    Attributes:
        include: patterns of devices to read; if empty, all.
        exclude: patterns of devices to skip; overrides `include`.
        rates: patterns of devices with their line rates; the first match applies.
    """

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    rates: tuple[LineRate, ...] = ()

    def chosen(self, name: str) -> bool:
        """Whether a device is selected."""
        included = not self.include or any(fnmatchcase(name, pattern) for pattern in self.include)
        return included and not any(fnmatchcase(name, pattern) for pattern in self.exclude)

    def line_rate(self, name: str) -> int | None:
        """Configured line rate of a device in bytes per second; None if not configured."""
        return next((rate.bytes_per_second for rate in self.rates if fnmatchcase(name, rate.device)), None)


EVERY_DEVICE = NetworkDevices()


def network_devices(config: Config) -> NetworkDevices:
    """Create the selection from the configuration."""
    return NetworkDevices(config.network_device_include, config.network_device_exclude, config.network_line_rate)
