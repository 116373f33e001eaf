"""Which GPU something is about: the only place that distinguishes GPUs.

A GPU is its UUID if that is known, else its PCI address, else its index. The same GPU may be known by more later: one
that was lost before the exporter started has an address, and a UUID once it answers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Generic, Protocol, TypeVar


class AboutGpu(Protocol):
    """A GPU, or something about a GPU, a slot or the host, by the names known when it was observed."""

    @property
    def gpu(self) -> str | None:
        """The driver's index, which another GPU may get; None for the host, and for a GPU that it does not show."""

    @property
    def uuid(self) -> str:
        """The UUID, which stays with the board; "" if unknown."""

    @property
    def pci_bus_id(self) -> str:
        """The PCI address in sysfs notation, which stays with the slot; "" if unknown."""


G = TypeVar("G", bound=AboutGpu)


def identity_of(about: AboutGpu) -> str:
    """Return what distinguishes it: a UUID, a PCI address, an index (``GPU 3``), or ``host``."""
    return about.uuid or about.pci_bus_id or ("host" if about.gpu is None else f"GPU {about.gpu}")


class KnownGpus(Generic[G]):
    """The GPUs of a host as they are known now. Of two at one address, the last one is there."""

    def __init__(self, gpus: Iterable[G] = ()) -> None:
        listed = tuple(gpus)
        self._by_uuid: Mapping[str, G] = MappingProxyType({gpu.uuid: gpu for gpu in listed if gpu.uuid})
        self._by_address: Mapping[str, G] = MappingProxyType({gpu.pci_bus_id: gpu for gpu in listed if gpu.pci_bus_id})
        # Indices shift: a GPU that is known by nothing else is more likely meant.
        by_index = sorted(listed, key=lambda gpu: not gpu.uuid)
        self._by_index: Mapping[str | None, G] = MappingProxyType({gpu.gpu: gpu for gpu in by_index})

    def of(self, about: AboutGpu) -> G | None:
        """Return its GPU; None for the host, and for a GPU that is gone."""
        if about.uuid:
            return self._by_uuid.get(about.uuid)
        if about.pci_bus_id:
            return self._by_address.get(about.pci_bus_id)
        return None if about.gpu is None else self._by_index.get(about.gpu)

    def have_replaced(self, about: AboutGpu) -> bool:
        """Whether another GPU is at the address of its GPU, which is gone."""
        there = self._by_address.get(about.pci_bus_id)
        return bool(about.uuid and there is not None and there.uuid) and about.uuid not in self._by_uuid
