"""The pager's rehearsal: incidents through a real Prometheus and a real Alertmanager, and what the webhook is told.

All incidents happen at once on hosts of their own, through the shipped rules and routes, twenty times faster than told:
every wait, window and interval is a twentieth. A host that is sick is repaired by a reboot of eight minutes. Two more
Prometheus servers run beside it: one is restarted while everything is broken, and one sees the series of two replicas.
"""

import pytest
from deploy.demo.pager import Notification
from tests.conftest import RequiresTool
from tests.e2e.rehearsal.stage import PAGER, TICKETS, Act, Inbox, never_resolved, opened, rehearse, still_open, summary
from tests.e2e.rehearsal.target import Host

from gpu_triage.alerting.settings import Settings


def _west(instance: str, **more: str) -> dict[str, str]:
    return {"cluster": "west", "instance": f"{instance}:9836", **more}


INCIDENTS = Act(
    pace=20,
    minutes=112,
    hosts=(
        *(
            Host(_west(play), play)
            for play in ("double-bit", "contained", "nvswitch", "gsp", "riser", "driver", "heat")
        ),
        # The same name in two clusters, and only one of the hosts is sick.
        Host(_west("gpu-host-1"), "xid-79"),
        Host({"cluster": "north", "instance": "gpu-host-1:9836"}, "healthy"),
        Host(_west("blink"), "double-bit", down=((50, 53),)),
        Host(_west("dies"), "double-bit", down=((40, 200),)),
        Host(_west("unseen"), "xid-62", down=((9, 23),)),
        Host(_west("reboot"), "healthy", down=((20, 29),)),
        Host(_west("gone"), "healthy", down=((20, 60),)),
        *(Host(_west(f"healthy-{i}"), "healthy") for i in range(4)),
        Host({"cluster": "south", "instance": "loop:9836"}, "healthy", loops=(10, 70)),
        *(
            Host({"cluster": "east", "instance": f"rack-7-{i}:9836", "rack": "7"}, "healthy", down=((20, 70),))
            for i in range(20)
        ),
        *(Host({"cluster": "east", "instance": f"rack-8-{i}:9836", "rack": "8"}, "healthy") for i in range(5)),
    ),
)
RESTARTED = Act(
    # Slower: Prometheus needs some five seconds from its start to its first scrape, whatever the pace.
    pace=5,
    minutes=19,
    away=("prometheus", 13.5, 13.5),
    hosts=(
        *(Host(_west(play), f"early-{play}") for play in ("xid-79", "double-bit", "nvswitch", "gsp", "driver")),
        Host(_west("gone"), "healthy", down=((1, 60),)),
        *(Host(_west(f"healthy-{i}"), "healthy") for i in range(4)),
    ),
)
REPLICATED = Act(
    pace=20,
    minutes=112,
    interval="30s",
    settings=Settings(replica_labels=("replica",)),
    hosts=tuple(
        Host(_west(play, replica=replica), play) for play in ("double-bit", "gsp", "healthy") for replica in ("a", "b")
    ),
)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory, requires_tool: RequiresTool) -> dict[str, Inbox]:
    """What the webhook was told from the first minute to the last, by act."""
    requires_tool("prometheus")
    requires_tool("prometheus-alertmanager")
    acts = {"incidents": INCIDENTS, "restarted": RESTARTED, "replicated": REPLICATED}
    return rehearse(acts, tmp_path_factory.mktemp("rehearsal"))


@pytest.fixture
def inbox(told: dict[str, Inbox]) -> Inbox:
    return told["incidents"]


def _of(inbox: Inbox, receiver: str, **labels: str) -> list[Notification]:
    return inbox.where(lambda each: labels.items() <= each.labels.items(), receiver)


def _assert_one_page(inbox: Inbox, **labels: str) -> Notification:
    """The page of an incident: sent once, resolved once, and nothing beside it."""
    pages, tickets = _of(inbox, PAGER, **labels), _of(inbox, TICKETS, **labels)
    everything = summary([*pages, *tickets])
    assert [each.status for each in pages] == ["firing", "resolved"], everything
    assert still_open(pages) == [], everything
    assert never_resolved(pages) == [], everything
    assert opened(tickets) == 0, everything
    return pages[0]


pytestmark = pytest.mark.timeout(900)  # the first test waits for the whole rehearsal, beside whatever else runs


@pytest.mark.parametrize(
    ("labels", "gpus"),
    [
        *((_west(play), 1) for play in ("double-bit", "gsp", "riser", "heat")),
        pytest.param(_west("gpu-host-1"), 1, id="off the bus"),
        pytest.param(_west("nvswitch"), 2, id="all GPUs of a host"),
        pytest.param(_west("blink"), 1, id="a target that is away for three minutes"),
    ],
)
def test_one_incident_is_one_page_about_its_gpus_until_repair(inbox: Inbox, labels: dict[str, str], gpus: int) -> None:
    page = _assert_one_page(inbox, **labels)
    assert len({each.labels["uuid"] for each in page.alerts}) == len(page.alerts) == gpus


@pytest.mark.parametrize(
    ("labels", "alert"),
    [
        pytest.param(_west("driver"), "GpuDriverUnavailable", id="the driver is gone"),
        pytest.param(_west("gone"), "GpuExporterDown", id="a host stays down"),
        pytest.param({"cluster": "east"}, "GpuExportersDown", id="a rack of twenty hosts"),
        pytest.param({"cluster": "south"}, "GpuExporterDown", id="an exporter crashes after each start"),
    ],
)
def test_what_has_one_cause_is_one_page(inbox: Inbox, labels: dict[str, str], alert: str) -> None:
    page = _assert_one_page(inbox, **labels)
    assert [each.labels["alertname"] for each in page.alerts] == [alert]


def test_a_contained_error_is_one_ticket_and_no_page(inbox: Inbox) -> None:
    pages, tickets = (_of(inbox, receiver, **_west("contained")) for receiver in (PAGER, TICKETS))
    assert pages == [], summary(pages)
    assert opened(tickets) == 1, summary(tickets)


def test_an_xid_of_before_the_first_scrape_in_fourteen_minutes_is_a_page(inbox: Inbox) -> None:
    pages = _of(inbox, PAGER, alertname="GpuXidCritical", **_west("unseen"))
    assert [each.status for each in pages] == ["firing", "resolved"], summary(pages)


def test_a_page_of_a_host_that_dies_stands_until_the_host_is_told_to_be_down(inbox: Inbox) -> None:
    pages = _of(inbox, PAGER, **_west("dies"))
    names = [(each.status, each.alerts[0].labels["alertname"]) for each in pages]
    (first, *others) = names
    assert first[0] == "firing", summary(pages)
    assert others == [("firing", "GpuExporterDown"), ("resolved", first[1])], summary(pages)


@pytest.mark.parametrize("play", ["xid-79", "double-bit", "nvswitch", "gsp", "driver", "gone"])
def test_a_restart_of_prometheus_neither_resolves_nor_repeats_a_page(told: dict[str, Inbox], play: str) -> None:
    pages = _of(told["restarted"], PAGER, **_west(play))
    assert [each.status for each in pages] == ["firing"], summary(pages)


@pytest.mark.parametrize("play", ["double-bit", "gsp"])
def test_two_replicas_in_one_ruler_are_one_page(told: dict[str, Inbox], play: str) -> None:
    page = _assert_one_page(told["replicated"], **_west(play))
    assert len({each.labels["instance"] for each in page.alerts}) == 1


def test_nothing_is_told_of_a_healthy_host_a_reboot_and_a_namesake_in_another_cluster(inbox: Inbox) -> None:
    quiet = {"reboot:9836", *(f"healthy-{i}:9836" for i in range(4))}
    heard = inbox.where(lambda each: each.labels.get("instance", "") in quiet or each.labels.get("cluster") == "north")
    assert heard == [], summary(heard)


def test_the_dead_mans_switch_hears_of_the_whole_rehearsal(inbox: Inbox) -> None:
    heard = inbox.where(lambda each: each.labels["alertname"] == "GpuTriageWatchdog", "gpu-dead-man")
    assert len(heard) > INCIDENTS.minutes / 5 / 2
    assert {each.status for each in heard} == {"firing"}
