"""gpu-triage-exporter: why a GPU job is slow or failing, as Prometheus metrics."""

__version__ = "0.1.0"

__revision__ = ""
"""Source revision; set by the release build."""
