"""`python -m tests.e2e.status_page_pictures`: photograph the status page of a simulated host for the documentation."""

import shutil
import sys
import tempfile
from pathlib import Path

from tests.e2e.browser import browser
from tests.status_server import status_server

from gpu_triage.judge.bottleneck.class_history import STRIP_SECONDS
from gpu_triage.options.config import Config
from gpu_triage_simulator import load_scenario

NIGHT = "h100-8-bad-night"
FOLDER = Path(__file__).resolve().parents[2] / "docs" / "img"

PICTURES = (("status-page", 33, 1400, 1000, False), ("status-page-phone", 79, 390, 844, True))
"""The name of each, the minute of the scenario that it shows, the size of the window, and whether it is dark."""


def main() -> int:
    """0, after the pictures are written."""
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.stderr.write("status_page_pictures: chromium is not installed here\n")
        return 1
    scenario = load_scenario(NIGHT)
    config = Config(simulate=NIGHT, sample_fast_seconds=5.0)
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        browser(Path(chromium), Path(folder)) as window,
    ):
        window.hide_scrollbars()
        for name, minute, width, height, dark in PICTURES:
            with status_server(scenario, 60.0 * minute, config=config, sampled_seconds=STRIP_SECONDS + 60.0) as server:
                window.open(server.url, width=width, height=height, dark=dark)
                path = FOLDER / f"{name}.png"
                window.screenshot(path, whole=False)
                sys.stdout.write(f"{path}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
