"""gpu-triage-exporter: why is this GPU job slow or sick, as Prometheus metrics."""

__version__ = "0.1.0"

__revision__ = ""
"""Source revision; a release build fills it in."""
