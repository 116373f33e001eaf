"""`gpu-triage fleet`, and `report --since` from raw series, beside a real Prometheus."""

import json
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click import unstyle
from click.testing import CliRunner, Result
from tests.command_line import Run
from tests.dashboards.store import Store
from tests.gathered import every
from tests.unit.cli.fleet.conftest import RULES_FROM_MINUTE

from gpu_triage.cli.fleet.fleet_text import FleetReport, render_json, render_text
from gpu_triage.cli.fleet.fleet_view import Fleet, Selection, fleet_of, queries
from gpu_triage.cli.fleet.job_pace import slow_jobs
from gpu_triage.cli.fleet.prometheus import HttpConfig, PrometheusClient, Series
from gpu_triage.cli.fleet.review import Prices, Review, first_look, review
from gpu_triage.cli.fleet.review_page import render_html, render_markdown
from gpu_triage.cli.main import group
from gpu_triage.errors import PrometheusUnavailable
from gpu_triage.judge.findings.finding import State
from gpu_triage.judge.findings.table import Severity
from gpu_triage.judge.findings.verdicts import Verdict

pytestmark = pytest.mark.slow

SICK, DEAD = "gpu-07:9836", "gpu-09:9836"
WELL = SICK  # the name of a host in each of two clusters


def fleet(store: Store, *arguments: str) -> Result:
    server = ("--prometheus", f"http://{store.address}/", "--at", f"{store.end:.0f}")
    return CliRunner().invoke(group, ["fleet", *server, *arguments], catch_exceptions=False, standalone_mode=False)


def document(store: Store, *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(fleet(store, "--format", "json", *arguments).output)
    return found


def test_the_sick_host_comes_first_with_its_findings_and_whose_job_is_hit(store: Store) -> None:
    found = document(store)
    assert found["summary"] == "3 hosts: 1 to drain, 1 not answering, 1 to keep"
    sick, dead, well = found["hosts"]
    assert (dead["instance"], dead["verdict"], dead["answers"], dead["gpus"]) == (DEAD, "not_read", False, [])
    assert (sick["cluster"], sick["instance"], sick["verdict"]) == ("east", SICK, "drain")
    assert (well["cluster"], well["instance"], well["verdict"], well["findings"]) == ("west", WELL, "keep", [])
    (lost,) = (each for each in sick["findings"] if each["code"] == "gpu.lost")
    assert (lost["severity"], lost["gpu"]) == ("critical", "1")
    assert store.start + 300 <= lost["since"] < store.start + 360
    assert sick["gpus"][1]["bottleneck"] == "sick"
    assert [each["slurm_job_id"] for each in sick["held_by"]] == ["4711"]
    assert found["drain"] == [{"cluster": "east", "job": "gpu-triage", "instance": SICK}]
    assert found["warnings"] == []


def test_people_read_what_to_drain_why_since_when_and_who_is_hit(store: Store) -> None:
    lines = fleet(store).output.splitlines()
    assert lines[0] == "3 hosts: 1 to drain, 1 not answering, 1 to keep"
    assert lines[3].startswith(f"drain     east/{SICK} (SIMULATED)  2 GPUs: 1 sick (GPU 1)")
    assert "    critical gpu.lost  GPU 1, for 10 min" in lines
    assert any(line.startswith("    hits      Slurm job 4711") for line in lines)
    assert f"    east/{SICK}" in lines[lines.index("drain:") :]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        ((), 1),
        (("--cluster", "west"), 0),
        (("--cluster", "west", "--fail-on", "info"), 0),
        (("--cluster", "south"), 0),
        (("--cluster", "south", "--fail-on", "warning"), 1),
        (("--instance", "gpu-0[7-9].*", "--job", ".*triage"), 1),
    ],
)
def test_exit_codes_are_those_of_check(store: Store, arguments: tuple[str, ...], code: int) -> None:
    assert fleet(store, *arguments).return_value == code


def test_one_cluster_can_be_chosen_where_another_has_a_host_of_the_same_name(store: Store) -> None:
    everything = {each["cluster"]: each for each in document(store)["hosts"]}
    for cluster in ("east", "west"):
        (host,) = document(store, "--cluster", cluster)["hosts"]
        assert host == everything[cluster]
    assert document(store, "--cluster", "east|south", "--instance", SICK)["hosts"] == [everything["east"]]
    assert document(store, "--cluster", "west")["drain"] == []


def test_no_query_names_the_hosts_too_often_for_victoriametrics() -> None:
    hosts = "|".join(f"gpu-{number:03}" for number in range(256))
    assert max(map(len, queries(Selection(instance=hosts)).values())) < 16 << 10


def test_before_the_fault_nothing_is_to_be_drained(store: Store) -> None:
    assert document(store, "--at", f"{store.start + 120:.0f}")["drain"] == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--cluster", "north"), "no exporter of gpu-triage matches"),
        (("--instance", "gpu-(0"), "rejects the query"),
        (("--at", "2000-01-01T00:00:00Z"), "there is no exporter of gpu-triage"),
    ],
)
def test_no_host_is_a_failure(store: Store, run: Run, arguments: tuple[str, ...], said: str) -> None:
    at = () if "--at" in arguments else ("--at", f"{store.end:.0f}")
    code, _, err = run("fleet", "--prometheus", f"http://{store.address}", *at, *arguments)
    assert (code, said in err) == (2, True)


def test_the_limit_counts_what_it_leaves_out(store: Store) -> None:
    assert "and 2 more, 1 to keep, 1 not read: raise --limit to see them" in fleet(store, "--limit", "1").output
    assert document(store, "--limit", "1")["hosts_total"] == 3


def test_jobs_that_lose_gpus_come_worst_first_with_what_they_wait_for(store: Store) -> None:
    first, second = document(store)["slow_jobs"]
    assert (first["cluster"], first["namespace"], first["name"]) == ("south", "ml", "train")
    assert (first["pace"], first["lost_gpus"], first["gpus"]) == (0.5, 4, 8)
    assert first["waits_for"] == [
        {"cluster": "south", "job": "gpu-triage", "instance": DEAD, "gpu": None, "uuid": None, "why": "starving"}
    ]
    assert (second["cluster"], second["namespace"], second["name"]) == ("east", None, "4711")
    assert (second["pace"], second["lost_gpus"], second["gpus"]) == (0.7, pytest.approx(2.4), 8)
    assert [(each["instance"], each["gpu"], each["why"]) for each in second["waits_for"]] == [(SICK, "1", "computing")]


def test_people_read_the_jobs_that_lose_gpus(store: Store) -> None:
    lines = fleet(store, "--limit", "1").output.splitlines()
    place = lines.index("jobs that lose GPUs:")
    assert lines[place + 1].startswith("    south/ml/train: 4.0 of 8 GPUs, at 50%")
    assert lines[place + 1].endswith(f"south/{DEAD} (starving)")
    assert lines[place + 2] == "    and 1 more"


@pytest.mark.parametrize(
    ("arguments", "names"),
    [(("--instance", SICK), ["4711"]), (("--cluster", "south|west"), ["train"]), (("--cluster", "west"), [])],
)
def test_jobs_are_those_of_the_chosen_hosts(store: Store, arguments: tuple[str, ...], names: list[str]) -> None:
    assert [each["name"] for each in document(store, *arguments)["slow_jobs"]] == names


def test_without_the_rules_no_job_is_said_to_be_slow_or_fast(store: Store) -> None:
    before = ("--at", f"{store.start + (RULES_FROM_MINUTE - 2) * 60:.0f}")
    assert document(store, *before)["slow_jobs"] == []
    assert "lose" not in fleet(store, *before).output


def test_a_job_is_named_by_its_own_waits_and_left_out_if_its_loss_is_not_known() -> None:
    answers = {
        "paces": [series(0.5, owner="1/"), series(0.5, owner="2/"), series(0.2, owner="3/")],
        "lost": [series(4, owner="1/"), series(8, owner="2/")],
        "waits": [series(1, owner="2/", gpu="3", uuid="GPU-d", why="clock"), series(1, owner="3/", why="network")],
    }
    found = [(job.name.name, job.gpus, [each.why for each in job.waits_for]) for job in slow_jobs(answers)]
    assert found == [("2", 16, ["clock"]), ("1", 8, [])]


LABELS = {"job": "gpu-triage", "instance": SICK}


def series(value: float, **labels: str) -> Series:
    return Series(defaultdict(str, LABELS | labels), ((100.0, value),))


def fleet_with(**answers: list[Series]) -> Fleet:
    nothing: dict[str, list[Series]] = {name: [] for name in queries(Selection())}
    return fleet_of(1000.0, nothing | answers)


def test_a_finding_that_is_pending_is_told_apart_and_a_warning_until_it_is_confirmed() -> None:
    width = {"severity": "critical", "code": "pcie.width", "action": "inspect_hardware", "gpu": "5", "uuid": "GPU-f"}
    gone = width | {"gpu": "6", "uuid": "GPU-g"}
    both = [series(940, **width), series(100, **gone)]
    found = {"exporters": [series(1)], "host_verdicts": [series(1)], "findings": both}
    pending = fleet_with(**found, states=[series(State.PENDING, **width), series(State.ENDED, **gone)])
    (host,) = pending.hosts
    assert host.worst == Severity.WARNING.rank
    shown = FleetReport(pending, "http://prometheus:9090", (), 20)
    assert (
        "    warning pcie.width  GPU 5, pending for 60 s; critical if it lasts"
        in unstyle(render_text(shown)).splitlines()
    )
    (told,) = json.loads(render_json(shown))["hosts"][0]["findings"]
    assert (told["severity"], told["confirmed_severity"], told["state"]) == ("warning", "critical", "pending")

    confirmed = fleet_with(**found, states=[series(State.CONFIRMED, **width), series(State.ENDED, **gone)])
    assert confirmed.hosts[0].worst == Severity.CRITICAL.rank
    assert (
        "    critical pcie.width  GPU 5, for 60 s" in unstyle(render_text(replace(shown, fleet=confirmed))).splitlines()
    )


def test_a_board_that_dcgm_reports_as_well_keeps_its_serial_number() -> None:
    board = {"gpu": "3", "uuid": "GPU-d"}
    gpus = [series(1, serial="1650", **board), series(1, job="dcgm", **board), series(1, gpu="4", serial="1651")]
    found = fleet_with(gpus=gpus, incidents=[series(3, kind="lost", **board), series(2, kind="lost", gpu="5")])
    assert [each.serial for each in found.offenders] == ["1650", ""]


def test_a_host_in_maintenance_is_shown_and_neither_to_drain_nor_a_failure() -> None:
    lost = {"severity": "critical", "code": "gpu.lost", "action": "drain", "gpu": "6", "uuid": "GPU-g"}
    found = {"exporters": [series(1)], "host_verdicts": [series(2)], "findings": [series(100, **lost)]}
    riser = [series(7200, source="command", reason="riser"), series(7200)]
    for planned, words in ((riser, "riser"), ([series(7200)], "the node is cordoned")):
        shown = fleet_with(**found, states=[series(State.CONFIRMED, **lost)], maintenance=planned)
        assert (shown.hosts[0].worst, shown.with_verdict(Verdict.DRAIN)) == (-1, ())
        lines = unstyle(render_text(FleetReport(shown, "http://prometheus:9090", (), 20))).splitlines()
        assert lines[0] == "1 host: 1 in maintenance"
        assert f"    in maintenance until 1970-01-01 02:00 UTC: {words}" in lines
        assert any(line.startswith("    critical gpu.lost  GPU 6") for line in lines)
    (told,) = json.loads(render_json(FleetReport(fleet_with(**found, maintenance=riser), "", (), 20)))["hosts"]
    assert told["maintenance"] == {"until": 7200, "source": "command", "reason": "riser"}


def test_a_failed_scrape_hides_no_host_to_drain(store: Store, run: Run) -> None:
    """After the end of what was recorded, no exporter answers. Blocks have no markers of staleness: 5 minutes pass."""
    at = ("--at", f"{store.end + 480:.0f}")
    (sick,) = document(store, *at)["hosts"]
    assert (sick["cluster"], sick["instance"], sick["verdict"], sick["answers"]) == ("east", SICK, "drain", False)
    assert {"gpu.lost", "xid.79"} <= {each["code"] for each in sick["findings"]}
    assert [each["slurm_job_id"] for each in sick["held_by"]] == ["4711"]
    assert (
        "its exporter does not answer: Prometheus cannot scrape it; this is from the last 15 min"
        in fleet(store, *at).output
    )
    assert fleet(store, *at).return_value == 1
    later = ("--at", f"{store.end + 1200:.0f}")
    assert run("fleet", "--prometheus", f"http://{store.address}", *later).code == 2


def test_a_host_that_a_server_has_twice_is_one_host_with_its_worst_verdict() -> None:
    finding = {"severity": "critical", "code": "gpu.lost", "action": "drain", "gpu": "1", "uuid": "GPU-b"}

    def twice(*values: float, **more: str) -> list[Series]:
        return [series(value, **more, replica=name) for name, value in zip("ab", values, strict=True)]

    states, began = twice(2, 2, **finding), twice(60, 40, **finding)
    found = fleet_with(host_verdicts=twice(2, 0), states=states, findings=began, down=twice(0, 0))
    (host,) = found.hosts
    assert host.verdict is Verdict.DRAIN
    assert [(each.code, each.since) for each in host.findings] == [("gpu.lost", 40)]


WINDOW = 600


def client(store: Store) -> PrometheusClient:
    return PrometheusClient(f"http://{store.address}", HttpConfig(), 10)


@pytest.fixture(scope="module")
def found(store: Store) -> Review:
    return first_look(client(store), Selection(), store.end, WINDOW)


def test_it_counts_what_the_exporters_measured(found: Review, store: Store) -> None:
    assert found.first_look
    (gpus,) = found.gpus
    assert gpus == 6
    names = ("observed", "active", "used", "unavailable", "allocated", "idle", "energy")
    totals = [found.total(name) for name in names]
    assert None not in totals
    observed, active, used, unavailable, allocated, idle, energy = (value or 0.0 for value in totals)
    assert 0 < used < active <= observed <= gpus * WINDOW / 3600
    # GPU 1 of cluster east was lost before these ten minutes.
    assert unavailable == pytest.approx(WINDOW / 3600)
    assert 0 <= idle < allocated <= observed
    joules = sum(
        each for one in store.at(f"increase(gpu_energy_joules_total[{WINDOW}s])", 900) for each in one.values.values()
    )
    assert energy == pytest.approx(joules / 3.6e6, rel=1e-3)


def test_models_and_losses_are_those_of_the_gpus(found: Review) -> None:
    models = found.tables["model"]
    for name in ("observed", "used", "unavailable"):
        assert sum(each.get(name, 0) for each in models.values()) == pytest.approx(found.total(name))
    assert all(name and 0 <= each["p95"] <= 1 for (name,), each in every(models.items()))
    by_class = sum(values[0] or 0 for values in found.held_back.values())
    for section in ("model", "host class"):
        assert sum(each.get("held back", 0) for each in found.tables[section].values()) == pytest.approx(by_class)
    assert not {"compute", "idle"} & set(found.held_back)


def test_a_selection_is_a_part_of_it(found: Review, store: Store) -> None:
    parts = [
        first_look(client(store), Selection(cluster=name), store.end, WINDOW) for name in ("east", "west", "south")
    ]
    assert sum(each.observed[0] or 0 for each in parts) == pytest.approx(found.observed[0])
    for name in ("used", "unavailable", "allocated", "idle"):
        assert sum(each.total(name) or 0 for each in parts) == pytest.approx(found.total(name))
    with pytest.raises(PrometheusUnavailable, match="has no GPU activity of hosts"):
        first_look(client(store), Selection(cluster="north"), store.end, WINDOW)


def test_the_pages_say_what_it_is(found: Review) -> None:
    text, page = render_markdown(replace(found, prices=Prices(2.5))), render_html(found).decode()
    assert text.startswith("# GPU capacity review, first look at 10 min\n")
    assert "from raw series" in text
    assert "Day by day" not in text + page
    assert "GPUs, most in a day" not in text


def test_the_command_and_the_review_without_rules_lead_to_it(store: Store, tmp_path: Path, run: Run) -> None:
    url = f"http://{store.address}"
    output = tmp_path / "look.md"
    look = ("report", "--prometheus", url, "--at", f"{store.end:.0f}", "--since", "30m", "--output", output)
    assert run(*look).code == 0
    assert "first look at 30 min" in output.read_text(encoding="utf-8")
    with pytest.raises(PrometheusUnavailable, match=r"load rules/recording\.yml, .*--since 6h for a first look"):
        review(client(store), Selection(), store.end, 3)


def test_an_accepted_finding_is_information_with_who_until_when_and_why() -> None:
    width = {"severity": "critical", "code": "pcie.width", "action": "inspect_hardware", "gpu": "5", "uuid": "GPU-f"}
    accepted = series(86_400, gpu="5", uuid="GPU-f", code="pcie.width", by="jd\x1b[2J", reason="riser")
    answers = {"findings": [series(940, **width)], "states": [series(3, **width)], "accepted": [accepted]}
    (host,) = fleet_with(exporters=[series(1)], host_verdicts=[series(0)], **answers).hosts
    (found,) = host.findings
    assert (found.urgency, found.state, host.worst, host.owners) == ("info", State.CONFIRMED, Severity.INFO.rank, ())
    shown = FleetReport(Fleet(1000.0, (host,), ()), "http://prometheus", (), 20)
    assert "info pcie.width  GPU 5, for 60 s; accepted by jd\\x1b[2J until 1970-01-02 00:00 UTC: riser" in unstyle(
        render_text(shown)
    )
    (document,) = json.loads(render_json(shown))["hosts"]
    assert document["findings"][0]["accepted"].endswith("until 1970-01-02 00:00 UTC: riser")
