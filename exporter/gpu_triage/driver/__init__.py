"""What stands between this program and the hardware: NVML and the kernel's files; child processes for what may hang."""
