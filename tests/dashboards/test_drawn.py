"""The first screen of each dashboard in Grafana's own components: no text is cut or beyond its tile, no query fails."""

from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from tests.conftest import NOT_PUBLIC, RequiresTool
from tests.dashboards.pictures import DESK, LIBRARIES, PHONE, SITUATIONS, drawn
from tests.e2e.browser import browser

pytestmark = [pytest.mark.full, pytest.mark.timeout(1200)]  # it draws a dozen pages


def test_nothing_is_cut_on_a_phone_or_a_desk(requires_tool: RequiresTool, tmp_path: Path) -> None:
    if not LIBRARIES.exists():
        pytest.skip(f"{NOT_PUBLIC} Grafana's libraries, which `python -m tests.dashboards.pictures` fetches")
    chromium, prometheus, promtool = map(requires_tool, ("chromium", "prometheus", "promtool"))
    night, found = SITUATIONS["bad-night"], {}
    with (
        browser(chromium, tmp_path) as window,
        drawn(night, window, tmp_path / "night", prometheus, promtool) as (store, show),
    ):
        for (name, view), (width, height) in product(night.views(store), (PHONE, DESK)):
            found[name, width] = show(replace(view, width=width, height=height))
    assert len(found) > len(SITUATIONS)
    assert {page: failures for page, failures in found.items() if failures} == {}
