"""The handbook: the playbook, a runbook for every alert, and the Xid codes, as data of the package.

`pages` finds a page by alert, finding or Xid; `markdown` reads its text and renders it as HTML, `terminal` as text. The
exporter serves the pages under ``/runbooks/`` and ``gpu-triage explain`` prints them: neither needs a network.
"""
