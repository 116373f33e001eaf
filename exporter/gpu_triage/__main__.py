"""``python -m gpu_triage``."""

from gpu_triage.cli import main

main()
