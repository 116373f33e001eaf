"""Metrics of the exporter itself."""
