"""``python -m gpu_triage.alerting FOLDER``: write the rules as they are shipped, which ``make rules`` does."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from gpu_triage.alerting.files import shipped


def main(arguments: Sequence[str]) -> int:
    """Write every file of rules into the folder named; returns the exit code, 2 for wrong usage."""
    if len(arguments) != 1:
        sys.stderr.write("usage: python -m gpu_triage.alerting FOLDER\n")
        return 2
    for name, text in shipped().items():
        path = Path(arguments[0]) / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
