"""Kernel files, the PCI bus and its uevents; the only package that imports pyudev."""
