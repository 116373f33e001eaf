"""Generates the examples derived from other files; ``python -m deploy.examples`` writes them (``make examples``)."""
