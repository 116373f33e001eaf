"""The page for people, drawn from the exporter's last judgement of its host; loaded on the first request for it.

`document` is the whole page; `overview`, `findings`, `gpus`, `topology` and `collectors` are its sections; `strips`
draws the last half hour; `markup` escapes; `style` holds the style sheet, the script and the policy that allows nothing
else.
"""
