from __future__ import annotations

import time
from pathlib import Path

from gpu_triage.driver.kernel.pci_bus import BusEvents


def test_no_event_is_no_hint_and_asking_never_waits() -> None:
    events = BusEvents()
    assert [events.seen() for _ in range(100)] == [False] * 100


def test_an_event_of_a_pci_device_is_a_hint_once() -> None:
    events = BusEvents()
    devices = sorted(Path("/sys/bus/pci/devices").glob("*"))
    try:
        # A "change" that the kernel announces on request; nothing about the device changes.
        (devices[0] / "uevent").write_text("change")
    except (OSError, IndexError):
        # No right to, or no PCI bus: then there must be no hint either.
        assert not events.seen()
        return
    limit = time.monotonic() + 5
    while not events.seen():
        assert time.monotonic() < limit
    assert not events.seen()
