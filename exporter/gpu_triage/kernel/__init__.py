"""The kernel's files, the PCI bus and its events: the only importer of pyudev."""
