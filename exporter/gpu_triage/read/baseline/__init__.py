"""Baseline: a recording of a host in a healthy state, to compare with the collectors' current readings."""
