"""Scheduling, fault isolation, timing and publication: the path from collectors to their outcomes."""
