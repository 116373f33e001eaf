"""Grafana dashboards, built by these modules and committed as JSON next to them.

`python -m dashboards` writes the JSON. A panel is one call in the module of a dashboard; `panels` and `tables` define
the panel types, `selectors` how queries select series, `words` the names and colors of values.
"""
