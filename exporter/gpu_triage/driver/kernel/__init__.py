"""Kernel files, the PCI bus and its uevents."""
