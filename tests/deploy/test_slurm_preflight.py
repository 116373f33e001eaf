"""The preflight of Slurm's scripts: it finds what is missing, and nothing else."""

from __future__ import annotations

import shutil

import pytest
from tests.slurm_node import NOBODY, Node

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed"),
]


def test_the_preflight_has_no_objection_to_the_recommended_configuration(node: Node, sick: str) -> None:
    result = node.run("preflight", sick)
    assert result.returncode == 0, result.stdout
    assert "problem" not in result.stdout
    assert f"ok: the exporter answers at {sick}" in result.stdout.splitlines()


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        (
            {"SchedulerParameters": "(null)"},
            "SchedulerParameters does not contain nohold_on_prolog_fail: a job whose prolog",
        ),
        ({"SchedulerParameters": "xnohold_on_prolog_fail"}, "SchedulerParameters does not contain"),
        ({"Prolog": "(null)"}, "Prolog is not set in slurm.conf"),
        ({"HealthCheckProgram": "(null)"}, "HealthCheckProgram is not set in slurm.conf"),
        ({"PrologFlags": "(null)"}, "PrologFlags does not contain Alloc"),
        (
            {"PrologEpilogTimeout": "30"},
            "PrologEpilogTimeout is 30 s: raise it above",
        ),
    ],
)
def test_the_preflight_reports_what_slurm_lacks(node: Node, sick: str, changes: dict[str, str], problem: str) -> None:
    node.configured(**changes)
    result = node.run("preflight", sick)
    assert result.returncode == 1
    (found,) = (line for line in result.stdout.splitlines() if line.startswith("problem: "))
    assert found.startswith(f"problem: {problem}")


def test_the_preflight_reports_a_node_that_could_not_be_checked(node: Node) -> None:
    node.has_no_program()
    settings = {"NODE_CHECK_UNCHECKED": "yes", "NODE_CHECK_SCONTROL": "false", "NODE_CHECK_LOGGER": "no-such-logger"}
    result = node.run("preflight", NOBODY, **settings)
    assert result.returncode == 1
    assert [line.partition(":")[2].split("; ")[0] for line in result.stdout.splitlines()] == [
        " no-such-logger is not installed",
        " NODE_CHECK_UNCHECKED is 'yes'",
        f" no exporter answers at {NOBODY}",
        " gpu-triage is not installed",
        " 'false show config' failed",
    ]
