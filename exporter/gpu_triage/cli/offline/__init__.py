"""Offline triage: judges the files of a support case the way a live host is judged."""
