"""Recordings of a host: NVML responses and kernel files, to be replayed elsewhere."""
