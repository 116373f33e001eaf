"""HTML pages; imported on the first request for one.

`document` is the host's status page, rendered from the exporter's last judgment; `overview`, `findings`, `gpus`
and `collectors` are its sections. `runbook` shows the handbook. `markup` escapes values; `style` has the
style sheet, the script and the Content-Security-Policy.
"""
