"""Access to the hardware: NVML and the kernel's files; child processes for what may hang."""
