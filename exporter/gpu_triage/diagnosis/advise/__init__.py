"""One GPU or several for a job on this host."""
