"""Readings to samples, one subject a file."""
