"""Prometheus, Alertmanager or the network between them is away for 14 minutes: no page is sent twice or resolved.

Real servers with the shipped rules, routes and the flags of deploy/alertmanager, six times faster than told.
Everything was broken before, and stays broken.
"""

from pathlib import Path

import pytest
from tests.conftest import RequiresTool
from tests.e2e.rehearsal.stage import PAGER, Act, Inbox, rehearse, summary
from tests.e2e.rehearsal.target import Host

pytestmark = pytest.mark.timeout(1200)

README = Path(__file__).parents[2] / "deploy/alertmanager/README.md"
DELAYS = {"rules.alert.resend-delay": "10m", "rules.alert.for-grace-period": "1m"}
SICK = ("xid-79", "double-bit", "nvswitch", "gsp", "driver")
HOSTS = (
    *(Host({"cluster": "west", "instance": f"{play}:9836"}, f"early-{play}") for play in SICK),
    Host({"cluster": "west", "instance": "gone:9836"}, down=((1, 99),)),
    *(Host({"cluster": "west", "instance": f"healthy-{i}:9836"}) for i in range(6)),
)
HOT = tuple(Host({"cluster": "hot", "instance": f"hot-{i:02}:9836"}, "early-hot" if i < 12 else "") for i in range(20))


def _act(what: str, *hosts: Host) -> Act:
    return Act(pace=6, minutes=38, away=(what, 17, 31), delays=DELAYS, hosts=hosts)  # type: ignore[arg-type] # a name


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory, requires_tool: RequiresTool) -> dict[str, Inbox]:
    requires_tool("prometheus")
    requires_tool("prometheus-alertmanager")
    acts = {
        "prometheus": _act("prometheus", *HOSTS, *HOT),
        "network": _act("network", *HOSTS, *HOT),
        "alertmanager": _act("alertmanager", *HOSTS),
    }
    return rehearse(acts, tmp_path_factory.mktemp("outages"))


@pytest.mark.parametrize("away", ["prometheus", "network", "alertmanager"])
def test_fourteen_minutes_away_send_no_page_twice_and_resolve_none(told: dict[str, Inbox], away: str) -> None:
    pages = told[away].where(lambda _: True, PAGER)
    west = [page for page in pages if page.alerts[0].labels["cluster"] == "west"]
    assert sorted(page.alerts[0].labels["instance"] for page in west) == sorted(
        [*(f"{play}:9836" for play in SICK), "gone:9836"]
    ), summary(pages)
    assert {page.status for page in pages} == {"firing"}, summary(pages)
    hot = [page.alerts[0].labels["alertname"] for page in pages if page.alerts[0].labels["cluster"] == "hot"]
    assert hot == ([] if away == "alertmanager" else ["GpuFleetHwThermalThrottling"]), summary(pages)


def test_the_flags_that_this_needs_are_documented() -> None:
    documented = README.read_text(encoding="utf-8")
    assert all(f"--{flag}={delay}" in documented for flag, delay in DELAYS.items())
