"""`python -m dashboards`: write the JSON of every dashboard next to its builder."""

from __future__ import annotations

import sys
from pathlib import Path

from dashboards.build import dashboards

FOLDER = Path(__file__).resolve().parent


def main() -> int:
    for name, text in dashboards().items():
        (FOLDER / name).write_text(text, encoding="utf-8")
        sys.stdout.write(f"dashboards/{name}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
