"""The driver through NVML: the only importer of pynvml."""
