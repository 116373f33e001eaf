"""Where a Config comes from: flags, environment variables, a YAML file, and defaults; declared in `option_table`."""
