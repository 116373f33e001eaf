"""``python -m gpu_triage.alerting FOLDER``: write the rules as shipped, for ``make rules``."""

from __future__ import annotations

import sys
from pathlib import Path

from gpu_triage.alerting.files import shipped, write_files

if __name__ == "__main__":
    try:
        (folder,) = sys.argv[1:]
    except ValueError:
        sys.stderr.write("usage: python -m gpu_triage.alerting FOLDER\n")
        sys.exit(2)
    write_files(Path(folder), shipped(), force=True)
