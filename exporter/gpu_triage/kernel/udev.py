"""The kernel's word that something happened on the PCI bus. A hint only: the bus is scanned anyway, but later."""

from __future__ import annotations

import logging
from typing import Any

log = logging.getLogger(__name__)


class BusEvents:
    """Listens for uevents of PCI devices (netlink, the kernel's own multicast group).

    udev's group is not used: where no udevd runs, as in most containers, it stays silent without an error.
    """

    def __init__(self) -> None:
        self._monitor = _listen()

    def seen(self) -> bool:
        """Whether a PCI device came, went or changed since the last call. Never waits, never raises."""
        happened = False
        try:
            while self._monitor is not None and self._monitor.poll(timeout=0) is not None:
                happened = True
        except OSError as error:
            # The kernel drops events on a full buffer: something happened, nobody knows what.
            log.debug("PCI events were dropped: %s", error)
            happened = True
        return happened


def _listen() -> Any | None:
    try:
        # Here and not above: without libudev the import itself fails, and periodic scans must do.
        import pyudev  # noqa: PLC0415

        monitor = pyudev.Monitor.from_netlink(pyudev.Context(), source="kernel")
        monitor.filter_by("pci")
        monitor.start()
    except (ImportError, OSError) as error:
        log.info("no PCI events on this host, the bus is scanned periodically: %s", error)
        return None
    return monitor
