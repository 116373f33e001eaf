"""HTML pages; imported on the first request for one.

`document` is the host's status page, rendered from the exporter's last judgment, and `sections` are its parts.
`runbook` shows the handbook. `markup` escapes values; `style` has style sheet, script and Content-Security-Policy.
"""
