"""``python -m gpu_triage.alerting FOLDER``: write the rules as shipped and the list of their metrics (`make rules`)."""

from __future__ import annotations

import sys
from pathlib import Path

import gpu_triage.read
from gpu_triage.alerting.files import shipped, write_files
from gpu_triage.alerting.metrics_of_rules import metrics_of_rules

if __name__ == "__main__":
    try:
        (folder,) = sys.argv[1:]
    except ValueError:
        sys.stderr.write("usage: python -m gpu_triage.alerting FOLDER\n")
        sys.exit(2)
    write_files(Path(folder), shipped(), force=True)
    Path(gpu_triage.read.__file__).with_name("metrics_of_rules.txt").write_text(metrics_of_rules(), encoding="utf-8")
