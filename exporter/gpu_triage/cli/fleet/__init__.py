"""Fleet-wide answers, from the Prometheus server that scrapes the exporters."""
