"""The first screen of each dashboard in Grafana's own components: no text is cut or beyond its tile, no query fails."""

import subprocess
from dataclasses import replace
from itertools import product
from pathlib import Path

import pytest
from tests.conftest import NOT_PUBLIC, RequiresTool
from tests.dashboards.grafana import FILES
from tests.dashboards.pictures import DESK, PHONE, SITUATIONS, drawn, fetch_libraries
from tests.e2e.browser import browser

pytestmark = [pytest.mark.full, pytest.mark.timeout(1200)]  # it draws a dozen pages


@pytest.mark.parametrize("name", ["bad-night", "long-names"])
def test_nothing_is_cut_on_a_phone_or_a_desk(requires_tool: RequiresTool, tmp_path: Path, name: str) -> None:
    programs = ("chromium", "prometheus", "promtool", "node", "npm")
    chromium, prometheus, promtool, _, npm = map(requires_tool, programs)
    if not fetch_libraries():
        registry = subprocess.run([npm, "ping"], capture_output=True, check=False, timeout=300)
        assert registry.returncode != 0, "npm's registry answers, but not with what package-lock.json pins"
        pytest.skip(f"{NOT_PUBLIC} Grafana's libraries, since npm's registry does not answer")
    situation, found = SITUATIONS[name], {}
    with (
        browser(chromium, tmp_path) as window,
        drawn(situation, window, tmp_path / "drawn", prometheus, promtool) as (store, show),
    ):
        for (board, view), (width, height) in product(situation.views(store), (PHONE, DESK)):
            found[board, width] = show(replace(view, width=width, height=height))
    assert len(found) == 2 * len(FILES)
    assert {page: failures for page, failures in found.items() if failures} == {}
