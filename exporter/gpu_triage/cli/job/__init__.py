"""Why a job is slow, from the Prometheus server that scrapes the exporters of its hosts."""
