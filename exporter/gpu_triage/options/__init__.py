"""Where a Config comes from: flags, environment variables, a YAML file, and the defaults, in that order.

Each option is declared once, in `option_table`; its flag, variable, file key, help and line of documentation follow.
"""
