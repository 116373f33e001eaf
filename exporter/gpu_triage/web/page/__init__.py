"""The pages for people; loaded on the first request for one.

`document` is that of this host, drawn from the exporter's last judgement; `overview`, `findings`, `gpus`, `topology`
and `collectors` are its sections. `runbook` shows the handbook. `markup` escapes; `style` holds the style sheet, the
script and the policy that allows nothing else.
"""
