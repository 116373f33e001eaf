"""Processes on GPUs: who they are, whose job they belong to, where their memory is."""
