"""Whose GPU hours they were: the capacity rules by namespace, user and account, on two hours written by hand."""

import pytest
from tests.conftest import RequiresTool
from tests.promql.promtool import Answers, Run, ask, selector
from tests.rules.rulefile import groups_of, rule_files

MINUTES = 120
STEP_SECONDS = 60
ALLOCATED, USED, OWNED_IDLE = (
    f"instance_owner:gpu_{what}_hours:sum1d" for what in ("allocated", "used", "allocated_idle")
)
IDLE = "sum_over_time(instance_gpu:gpu_allocated_idle:active[1d]) * 300"

ZERO = (0.0, 0.0)

Series = dict[str, list[float]]


def of_gpu(uuid: str, metric: str, values: tuple[float, float] = (1.0, 0.0), /, **labels: str) -> Series:
    """A series of a GPU: its first value, and by how much it grows in a minute."""
    target = {"instance": "host", "job": "gpu-triage", "gpu": uuid, "uuid": uuid}
    first, growth = values
    each = [first + growth * minute for minute in range(MINUTES + 1)]
    return {selector(metric, [*target.items(), *labels.items()]): each}


def busy(uuid: str, share: float) -> Series:
    """A GPU that is busy for a share of the time, of which half is observed."""
    observed = of_gpu(uuid, "gpu_observed_seconds_total", (0.0, 30))
    return observed | of_gpu(uuid, "gpu_up") | of_gpu(uuid, "gpu_busy_seconds_total", (0.0, 30 * share))


def pod(uuid: str, namespace: str, name: str, **labels: str) -> Series:
    return of_gpu(uuid, "gpu_allocated", workload_namespace=namespace, workload_pod=name, **labels)


def used(uuid: str, user: str, **labels: str) -> Series:
    return of_gpu(uuid, "gpu_process_owner_info", user=user, **labels)


SERIES = {
    # One pod has it, and uses half of its time; its process runs as root.
    **(busy("whole", 0.5) | pod("whole", "ml", "train-0")),
    **used("whole", "root", workload_namespace="ml", workload_pod="train-0"),
    # Three pods of two namespaces share it.
    **(busy("sliced", 0.3) | pod("sliced", "ml", "a") | pod("sliced", "dev", "b") | pod("sliced", "dev", "c")),
    # A job of Slurm has it, and no process is on it.
    **(busy("empty", 0.0) | of_gpu("empty", "gpu_processes", ZERO, type="compute")),
    **of_gpu("empty", "gpu_allocated", slurm_job_id="42", user="alice", account="physics"),
    # Cut into four, of which two are given away.
    **{key: values for n in range(4) for key, values in of_gpu("cut", "gpu_mig_info", mig_uuid=f"M{n}").items()},
    **(busy("cut", 0.8) | pod("cut", "mig", "a", mig_uuid="M0") | pod("cut", "mig", "b", mig_uuid="M1")),
    # No scheduler that says so: two users are on it, one of them with two jobs.
    **(busy("shared", 1.0) | used("shared", "bob", slurm_job_id="1") | used("shared", "bob", slurm_job_id="2")),
    **used("shared", "carol"),
    # The scheduler says that it is free, and somebody uses it all the same.
    **(busy("stray", 0.25) | of_gpu("stray", "gpu_allocated", ZERO) | used("stray", "dave")),
    # The driver lists no process; the memory in use of the second may be the page cache's.
    **(busy("hidden", 0.0) | of_gpu("hidden", "gpu_memory_used_bytes", (2e10, 0.0))),
    **(busy("cached", 0.0) | of_gpu("cached", "gpu_memory_used_bytes", (2e10, 0.0))),
    **of_gpu("cached", "gpu_memory_os_managed"),
    # Nobody has it.
    **(busy("free", 0.0) | of_gpu("free", "gpu_allocated", ZERO) | of_gpu("free", "gpu_processes", ZERO)),
}
OWNERS = {
    ("ml", "", ""): (1 + 1 / 3, 0.5 + 0.1, 0.0),
    ("dev", "", ""): (2 / 3, 0.2, 0.0),
    ("", "alice", "physics"): (1.0, 0.0, 1.0),
    ("mig", "", ""): (0.5, 0.4, 0.0),
    ("", "bob", ""): (0.5, 0.5, 0.0),
    ("", "carol", ""): (0.5, 0.5, 0.0),
    ("", "dave", ""): (1.0, 0.25, 0.0),
    # Whoever has the hidden one, and what was used of the half of the cut one that was given to nobody.
    ("", "", ""): (1.0, 0.4, 1.0),
}
"""GPUs that each owner had, how much of them it used, and how many were idle, by namespace, user and account."""


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory, requires_tool: RequiresTool) -> Answers:
    rules = tuple(path for path in rule_files() if path.name == "recording.yml")
    asked = tuple((name, MINUTES * STEP_SECONDS) for name in (ALLOCATED, USED, OWNED_IDLE, IDLE))
    run = Run(rules, groups_of(rules), STEP_SECONDS, SERIES, asked, evaluation_seconds=300.0)
    return ask(requires_tool("promtool"), run, tmp_path_factory.mktemp("owners"))


@pytest.mark.parametrize(("name", "which"), [(ALLOCATED, 0), (USED, 1), (OWNED_IDLE, 2)])
def test_hours_go_to_those_who_were_given_the_gpu_else_to_those_who_use_it(
    answers: Answers, name: str, which: int
) -> None:
    found = {
        tuple(sample.labels.get(label, "") for label in ("workload_namespace", "user", "account")): sample.value
        for sample in answers.samples[name, MINUTES * STEP_SECONDS]
    }
    hours = MINUTES / 60
    expected = {owner: shares[which] * hours for owner, shares in OWNERS.items()}
    known = expected if which != 2 else {owner: idle for owner, idle in expected.items() if owner in found}
    assert known.keys() == found.keys()
    assert found == pytest.approx(known, abs=0.2)


def test_a_gpu_that_was_given_to_a_job_without_a_process_is_held_and_idle(answers: Answers) -> None:
    idle = {s.labels["uuid"]: s.value for s in answers.samples[IDLE, MINUTES * STEP_SECONDS]}
    assert (idle["empty"], idle["hidden"]) == pytest.approx((MINUTES * 60, MINUTES * 60), rel=0.05)
    assert {uuid for uuid, seconds in idle.items() if seconds == 0} >= {"whole", "sliced"}
    assert (idle.get("free", 0), "cached" in idle) == (0, False)
