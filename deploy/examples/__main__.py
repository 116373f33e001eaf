"""``python -m deploy.examples``: write the derived examples to the working tree."""

from __future__ import annotations

import sys
from pathlib import Path

from deploy.examples.alertmanager import alertmanager_files
from deploy.examples.fleet import fleet_files
from deploy.examples.kubernetes import kubernetes_files

REPOSITORY = Path(__file__).resolve().parents[2]

if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit("usage: python -m deploy.examples")
    files = alertmanager_files(REPOSITORY) | fleet_files(REPOSITORY) | kubernetes_files(REPOSITORY)
    for path, text in files.items():
        (REPOSITORY / path).parent.mkdir(parents=True, exist_ok=True)
        (REPOSITORY / path).write_text(text, encoding="utf-8")
