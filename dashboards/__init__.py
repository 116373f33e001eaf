"""Grafana dashboards, built by these modules and committed as the JSON beside them.

`python -m dashboards` writes the JSON. A panel is one call in one of the four dashboards' modules; `panels` and
`tables` say what kinds there are, `selectors` how a query picks its series, `words` what values mean and their colours.
"""
