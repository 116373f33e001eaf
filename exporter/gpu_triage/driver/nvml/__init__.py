"""Access to the driver through NVML; the only package that imports pynvml.

A call raises GpuUnavailable if the GPU is lost or needs a reset, and DriverUnavailable if NVML as a whole is gone.
"""
