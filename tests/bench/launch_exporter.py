"""This exporter with its stand-in driver metered: ``-m tests.bench.launch_exporter METER_FILE serve …``."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.bench import metering

from gpu_triage.cli.main import main

if __name__ == "__main__":
    metering.install(Path(sys.argv.pop(1)))
    main()
