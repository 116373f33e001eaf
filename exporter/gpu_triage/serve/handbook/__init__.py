"""The handbook: the playbook, a runbook for every alert, and the Xid codes, as package data.

`pages` finds a page by alert, finding or Xid; `markdown` parses the pages and renders them as HTML, `terminal` as text.
The exporter serves them under ``/runbooks/`` and ``gpu-triage explain`` prints them; both work offline.
"""
