"""The first screen of each dashboard in Grafana's own components: no text is cut or beyond its tile, no query fails."""

from dataclasses import replace
from pathlib import Path

import pytest
from tests.conftest import NOT_PUBLIC, RequiresTool
from tests.dashboards.pictures import DESK, LIBRARIES, PHONE, SITUATIONS, drawn
from tests.e2e.browser import browser

pytestmark = [pytest.mark.full, pytest.mark.timeout(1200)]  # it draws a dozen pages


def test_nothing_is_cut_on_a_phone_or_a_desk(requires_tool: RequiresTool, tmp_path: Path) -> None:
    if not LIBRARIES.exists():
        pytest.skip(f"{NOT_PUBLIC} Grafana's libraries, which `python -m tests.dashboards.pictures` fetches")
    programs = [requires_tool(name) for name in ("chromium", "prometheus", "promtool", "node")]
    found = []
    with browser(programs[0], tmp_path) as window:
        situation = SITUATIONS["bad-night"]
        with drawn(situation, window, tmp_path / "night", programs[1], programs[2]) as (store, shown):
            for name, view in situation.views(store):
                for width, height in (PHONE, DESK):
                    shown.show(replace(view, width=width, height=height))
                    found += [f"{name} at {width}: {each}" for each in shown.failures]
    assert found == []
