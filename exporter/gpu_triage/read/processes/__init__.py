"""Processes on GPUs: identity, owner (pod, container, Slurm job) and NUMA locality."""
