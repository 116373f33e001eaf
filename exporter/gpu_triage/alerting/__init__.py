"""Alert rules, inhibitions and dashboards: one source, settings laid over it, and the files written from both."""
