"""Schedules, isolates, times and publishes: the way from collectors to outcomes."""
