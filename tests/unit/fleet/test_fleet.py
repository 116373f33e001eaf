"""`gpu-triage fleet` beside a real Prometheus."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.dashboards.store import Store

from gpu_triage.cli import group
from gpu_triage.diagnosis.findings.verdicts import Verdict
from gpu_triage.fleet.client import Series
from gpu_triage.fleet.query import Answers, Selection, queries
from gpu_triage.fleet.view import fleet_of
from gpu_triage.options import run_cli

pytestmark = pytest.mark.slow

SICK, DEAD = "gpu-07:9836", "gpu-09:9836"
WELL = SICK
"""The name of a host in each of two clusters."""


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


def test_before_the_fault_nothing_is_to_be_drained(store: Store) -> None:
    assert document(store, "--at", f"{store.start + 120:.0f}")["drain"] == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--cluster", "north"), "no exporter of gpu-triage matches"),
        (("--instance", "gpu-(0"), "rejects the query"),
        (("--at", "2000-01-01T00:00:00Z"), "there is no exporter of gpu-triage"),
        (("--at", "yesterday"), "is no time"),
        (("--at", "2026-11-22T10:00:00"), "has no offset"),
    ],
)
def test_an_answer_about_no_host_is_no_good_news(
    store: Store, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], said: str
) -> None:
    at = () if "--at" in arguments else ("--at", f"{store.end:.0f}")
    assert run_cli(group, ["fleet", "--prometheus", f"http://{store.address}", *at, *arguments]) == 2
    assert said in capsys.readouterr().err


def test_the_limit_counts_what_it_leaves_out(store: Store) -> None:
    assert "and 2 more, 1 to keep, 1 not read: raise --limit to see them" in fleet(store, "--limit", "1").output
    assert document(store, "--limit", "1")["hosts_total"] == 3


def test_a_host_that_a_server_has_twice_is_one_host_with_its_worst_verdict() -> None:
    labels = defaultdict(str, {"job": "gpu-triage", "instance": SICK})
    finding = {"severity": "critical", "code": "gpu.lost", "action": "drain", "gpu": "1", "uuid": "GPU-b"}

    def twice(*values: float, **more: str) -> list[Series]:
        return [
            Series(defaultdict(str, {**labels, **more, "replica": name}), ((100.0, value),))
            for name, value in zip("ab", values, strict=True)
        ]

    nothing: dict[str, list[Series]] = {name: [] for name in queries(Selection())}
    answers = Answers(
        at=100.0, **{**nothing, "host_verdicts": twice(2, 0), "findings": twice(60, 40, **finding), "down": twice(0, 0)}
    )
    (host,) = fleet_of(answers).hosts
    assert host.verdict is Verdict.DRAIN
    assert [(each.code, each.since) for each in host.findings] == [("gpu.lost", 40)]
