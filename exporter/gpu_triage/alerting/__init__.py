"""Alert rules, inhibitions and dashboards: generated from one source and the user's settings."""
