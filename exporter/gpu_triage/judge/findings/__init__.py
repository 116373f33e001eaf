"""All kinds of findings, current findings and their states, and verdicts on GPUs."""
