"""The page for people, drawn from the exporter's verdict on its own host; loaded when somebody first looks at it.

`document` is the whole, `findings`, `gpus`, `topology` and `collectors` are its parts, `markup` escapes, `style` holds
the style sheet, the script and the policy that allows nothing else.
"""
