"""I/O to readings: the driver through NVML, the kernel through sysfs and procfs."""
