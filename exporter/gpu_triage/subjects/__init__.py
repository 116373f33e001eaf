"""Shared by all subjects: contract, rounds, metric declarations, counters and rendering."""
