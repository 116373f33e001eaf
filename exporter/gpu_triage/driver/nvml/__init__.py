"""Access to the driver through NVML; the only package that imports pynvml."""
