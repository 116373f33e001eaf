"""The report on a host: for people, for programs, and as an exit code."""
