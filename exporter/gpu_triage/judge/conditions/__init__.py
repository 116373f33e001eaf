"""Judges: each examines one part of a host and yields findings."""
