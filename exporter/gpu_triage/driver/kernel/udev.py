"""Kernel uevents of the PCI bus. They only trigger an early scan; the bus is also scanned periodically."""

from __future__ import annotations

import logging
from typing import Any

log = logging.getLogger(__name__)


class BusEvents:
    """Listens for uevents of PCI devices (netlink, the kernel's own multicast group).

    udev's multicast group is not used: without udevd, as in most containers, it is silent without an error.
    """

    def __init__(self) -> None:
        self._monitor = _listen()

    def seen(self) -> bool:
        """Whether a PCI device was added, removed or changed since the last call. Never blocks, never raises."""
        happened = False
        try:
            while self._monitor is not None and self._monitor.poll(timeout=0) is not None:
                happened = True
        except OSError as error:
            # The kernel drops events when the buffer is full: something happened, but what is unknown.
            log.debug("PCI events were dropped: %s", error)
            happened = True
        return happened


def _listen() -> Any | None:
    try:
        # Imported here: without libudev the import fails, and periodic scans must suffice.
        import pyudev  # noqa: PLC0415

        monitor = pyudev.Monitor.from_netlink(pyudev.Context(), source="kernel")
        monitor.filter_by("pci")
        monitor.start()
    except (ImportError, OSError) as error:
        log.info("no PCI events on this host, the bus is scanned periodically: %s", error)
        return None
    return monitor
