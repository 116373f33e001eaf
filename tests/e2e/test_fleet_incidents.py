"""What strikes many hosts, through a real Prometheus and a real Alertmanager: the notifications that a person receives.

Each situation has a cluster of its own. All play at once, ten times faster than told, through the shipped rules and
routes. No target has a label rack. Most hosts of a cluster only count as healthy.
"""

import re
from collections.abc import Iterable, Mapping

import pytest
from deploy.demo.pager import Notification
from tests.conftest import RequiresTool
from tests.e2e.rehearsal.stage import PAGER, TICKETS, Act, Inbox, opened, rehearse, summary
from tests.e2e.rehearsal.target import Host, Minutes

pytestmark = pytest.mark.timeout(1200)


def _cluster(
    name: str, count: int, play: str = "", late: Iterable[Minutes] = (), down: Mapping[int, Minutes] | None = None
) -> list[Host]:
    """`count` hosts: one plays for each value of `late`, those of `down` end at a minute, and the rest is well."""
    starts = list(late)
    gone = down or {}
    return [
        Host(
            {"cluster": name, "instance": f"{name}-{i:03}:9836"},
            play if i < len(starts) else "",
            late=starts[i] if i < len(starts) else 0,
            down=((gone[i], 999),) if i in gone else (),
        )
        for i in range(count)
    ]


SITUATIONS = Act(
    pace=10,
    minutes=105,
    interval="30s",
    hosts=(
        *_cluster("heat", 80, "hot", (i * 0.25 // 0.5 * 0.5 for i in range(40))),
        *_cluster("dead", 200, down={i: 20 + i / 20 for i in range(30)}),
        *_cluster("nfs", 60, "nfs", (i // 4 * 0.5 for i in range(20))),
        *_cluster("leaf", 64, "port", (i // 8 * 0.5 for i in range(16))),
        *_cluster("upgrade", 40, "upgrade", (i // 2 * 1.5 for i in range(20))),
        *_cluster("small", 12, down={0: -1, 1: -1, 2: -1, 3: 30}),
        *_cluster("later", 12, down={0: 5, 1: 5, 2: 5, 3: 50}),
    ),
)


@pytest.fixture(scope="module")
def inbox(tmp_path_factory: pytest.TempPathFactory, requires_tool: RequiresTool) -> Inbox:
    requires_tool("prometheus")
    requires_tool("prometheus-alertmanager")
    return rehearse({"situations": SITUATIONS}, tmp_path_factory.mktemp("fleet"))["situations"]


def _heard(inbox: Inbox, cluster: str) -> list[Notification]:
    return [n for n in inbox.where(lambda each: each.labels.get("cluster") == cluster) if n.receiver != "gpu-dead-man"]


def _opened(inbox: Inbox, cluster: str) -> dict[str, int]:
    """How many incidents the pager and the ticket system open for a cluster."""
    heard = _heard(inbox, cluster)
    return {name: opened([n for n in heard if n.receiver == name]) for name in {n.receiver for n in heard}}


def _first(inbox: Inbox, cluster: str, alert: str) -> Notification:
    heard = [n for n in _heard(inbox, cluster) if n.alerts[0].labels["alertname"] == alert]
    assert heard, summary(_heard(inbox, cluster))
    return heard[0]


def _text(page: Notification) -> tuple[str, str]:
    return page.alerts[0].annotations["summary"], page.alerts[0].annotations["description"]


@pytest.mark.parametrize(
    ("cluster", "receiver", "alert", "title"),
    [
        ("heat", PAGER, "GpuFleetHwThermalThrottling", r"\d+ of 80 hosts throttle for heat SINCE: look at the room"),
        ("dead", PAGER, "GpuExportersDown", "30 of 200 hosts are gone SINCE: look for what they share"),
        ("nfs", PAGER, "GpuFleetStorageDown", "20 of 60 hosts wait for file server nas01 SINCE: look at the server"),
        ("leaf", TICKETS, "GpuFleetNetworkDown", "16 of 64 hosts lost InfiniBand or RoCE ports SINCE: .*"),
    ],
)
def test_one_cause_is_one_notification(inbox: Inbox, cluster: str, receiver: str, alert: str, title: str) -> None:
    assert _opened(inbox, cluster) == {receiver: 1}, summary(_heard(inbox, cluster))
    text, description = _text(_first(inbox, cluster, alert))
    assert re.fullmatch(f"{cluster}/gpu-triage: {title}".replace(" SINCE", ", since ..:.. UTC"), text), text
    three = ", ".join(f"{cluster}-00{i}:9836" for i in range(3))
    assert f" Among them: {three}; " in description
    assert re.search(r" All hosts: http://\S+$", description)


def test_what_hosts_share_is_named_where_it_can_be_known(inbox: Inbox) -> None:
    _, description = _text(_first(inbox, "leaf", "GpuFleetNetworkDown"))
    assert "they share mlx5_2 port 1 (16 hosts)." in description
    _, description = _text(_first(inbox, "dead", "GpuExportersDown"))
    assert "what they share cannot be known here: no label rack or leaf of the targets, and no subnet." in description


def test_all_that_was_sent_about_many_hosts_is_resolved_and_nothing_else_follows(inbox: Inbox) -> None:
    for cluster in ("heat", "nfs"):
        heard = _heard(inbox, cluster)
        assert [page.status for page in heard] == ["firing", "resolved"], summary(heard)


def test_a_planned_upgrade_is_one_ticket_for_the_field_that_it_changes(inbox: Inbox) -> None:
    assert _opened(inbox, "upgrade") == {TICKETS: 1}, summary(_heard(inbox, "upgrade"))
    ticket = _first(inbox, "upgrade", "GpuBaselineDrift")
    assert {each.labels["field"] for each in ticket.alerts} == {"driver_version"}


@pytest.mark.parametrize("cluster", ["small", "later"])
def test_a_host_that_dies_after_others_is_a_page_of_its_own(inbox: Inbox, cluster: str) -> None:
    heard = inbox.where(lambda each: each.labels.get("instance") == f"{cluster}-003:9836", PAGER)
    names = [each.alerts[0].labels["alertname"] for each in heard]
    assert names == ["GpuExporterDown"], summary(_heard(inbox, cluster))


def test_three_hosts_of_twelve_that_die_together_are_one_page(inbox: Inbox) -> None:
    assert _opened(inbox, "later") == {PAGER: 2}, summary(_heard(inbox, "later"))
    assert "3 of 12 hosts are gone" in _text(_first(inbox, "later", "GpuExportersDown"))[0]
