"""``python -m tests.bench NAME``: measure one thing; docs/benchmarks.md names the command of each figure."""

from __future__ import annotations

import runpy
import sys

MODULES = {
    "peer": "tests.bench.run",
    "scale": "tests.bench.scale",
    "rules": "tests.bench.rules",
    "fleet": "tests.bench.fleet_cost",
    "attribution": "tests.bench.attribution",
    "soak": "tests.bench.soak",
    "hostile": "tests.bench.hostile",
}

if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in MODULES:
        sys.exit(f"usage: python -m tests.bench {'|'.join(MODULES)} [OPTIONS]")
    module = MODULES[sys.argv.pop(1)]
    runpy.run_module(module, run_name="__main__", alter_sys=True)
