"""Answers about a whole fleet, from the Prometheus that scrapes its exporters."""
