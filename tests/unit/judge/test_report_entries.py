"""The same finding on several GPUs as one entry, and the words for somebody without a scheduler."""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from click import unstyle
from tests.evidence import evidence_of
from tests.fed import MINUTE, Fed, loaded
from tests.one_shot import codes, finding, look_at

from gpu_triage.cli.measure import applies
from gpu_triage.judge.bottleneck.classes import UNHINDERED
from gpu_triage.judge.conditions.links import LINK_ADVICE
from gpu_triage.judge.evidence.owners import GpuOwner, owners_of, owners_text, scheduler_known
from gpu_triage.judge.findings.finding import Finding, State, of_gpu, of_host
from gpu_triage.judge.findings.table import BY_CODE, CHECKS, Area
from gpu_triage.judge.findings.verdicts import CLUSTER, DESK
from gpu_triage.judge.host_judge import HostJudge, Judgment
from gpu_triage.judge.report.entries import entry_of, grouped
from gpu_triage.judge.report.headline import headline
from gpu_triage.judge.report.machine_readable import render_json, report_from_json
from gpu_triage.judge.report.report import JudgedHost, Report
from gpu_triage.judge.report.summaries import summaries
from gpu_triage.judge.report.text import render_text
from gpu_triage.options.option_table import all_options
from gpu_triage.read.gpu.presence import GPU_UP
from gpu_triage.read.gpu.throttle import GPU_THROTTLE_SECONDS_TOTAL
from gpu_triage.read.host import access, disk, network_interfaces, services
from gpu_triage.read.metrics.metric import Sample
from gpu_triage.read.processes.allocation import GPU_ALLOCATED
from gpu_triage.read.processes.on_gpu import GPU_PROCESS_INFO, GPU_PROCESSES
from gpu_triage.read.registry import COLLECTOR_SWITCHES
from gpu_triage.serve.page.document import PageFacts, document
from gpu_triage_simulator import load_scenario
from gpu_triage_simulator.allocation import Allocation, Slurm


def hot(gpu: int, measured: str = "throttled 40% of the time", **facts: object) -> Finding:
    finding = Finding(BY_CODE["thermal.hw"], measured, str(gpu), f"GPU-{gpu}", value=0.4, state=State.CONFIRMED)
    return replace(finding, **facts)  # type: ignore[arg-type] # any field


def entries(*findings: Finding) -> list[tuple[str, str]]:
    return [(each.subject, each.measured) for each in (entry_of(group, DESK) for group in grouped(findings))]


def test_eight_equal_findings_are_one_entry_and_do_not_hide_the_ninth() -> None:
    ninth = Finding(BY_CODE["pcie.width"], "4 of 16 lanes", "5", "GPU-5")
    found = entries(*(hot(gpu) for gpu in range(8)), ninth)
    assert found == [("GPU 0-7", "throttled 40% of the time"), ("GPU 5", "4 of 16 lanes")]


@pytest.mark.parametrize(
    ("code", "values", "shown"),
    [
        ("thermal.hw", (0.31, 0.07), "throttled 7% to 31% of the time; as measured (on GPU 0, the worst)"),
        ("thermal.hw", (0.31, 0.31), "as measured (on GPU 0, the worst)"),
        ("thermal.hw", (0.31, None), "as measured (on GPU 0)"),
        ("pcie.width", (8.0, 4.0), "x4 to 8; and otherwise (on GPU 1, the worst)"),
        ("work.hung", (None, None), "as measured (on GPU 0)"),
    ],
)
def test_values_that_differ_are_a_range_and_the_worst_is_shown_with_its_gpu(
    code: str, values: tuple[float | None, float | None], shown: str
) -> None:
    texts = zip(("as measured", "and otherwise"), values, strict=True)
    found = [hot(gpu, text, value=value, check=BY_CODE[code]) for gpu, (text, value) in enumerate(texts)]
    assert entries(*found) == [("GPU 0-1", shown)]


@pytest.mark.parametrize(
    "other",
    [
        {"state": State.PENDING},
        {"holds": False},
        {"explained_by": "power.brake"},
        {"cause_advice": BY_CODE["gpu.lost"].advice},
    ],
)
def test_what_stands_otherwise_is_an_entry_of_its_own(other: dict[str, Any]) -> None:
    assert len(entries(hot(0), hot(1, **other), hot(2))) == 2


def test_findings_of_the_host_and_of_slots_stay_apart() -> None:
    slots = [Finding(BY_CODE["xid.79"], "Xid 79", pci_bus_id=f"0000:{bus}:00.0") for bus in ("ba", "bb")]
    host = Finding(BY_CODE["storage.starved"], "waiting")
    subjects = [subject for subject, _ in entries(*slots, host, host)]
    assert subjects == ["GPU at 0000:ba:00.0", "GPU at 0000:bb:00.0", "host", "host"]


def test_the_longest_time_counts() -> None:
    waits = [hot(gpu, state=State.PENDING, since=0.0, lasted_seconds=seconds) for gpu, seconds in ((0, 90.0), (1, 130))]
    (group,) = grouped(waits)
    assert entry_of(group, CLUSTER).life_cycle.startswith("has lasted 2 min of")


def judgment(count: int, *samples: Sample) -> Judgment:
    """Eight hot GPUs and one with a narrow link."""
    up = [GPU_UP.sample(1, str(gpu), f"GPU-{gpu}") for gpu in range(count)]
    latest = HostJudge(JudgedHost("gpu-7", continuous=True)).judge(evidence_of((0.0, [*up, *samples])))
    found = [*(hot(gpu) for gpu in range(count)), Finding(BY_CODE["pcie.width"], "4 of 16 lanes", "1", "GPU-1")]
    areas = tuple(
        replace(area, findings=tuple(each for each in found if each.check.area is area.area))
        for area in latest.report.areas
    )
    return replace(latest, report=replace(latest.report, areas=areas))


FACTS = PageFacts("1", "gpu-7", None, "/metrics", None, None, judge_failed=False)


def test_text_and_page_tell_it_once_and_json_for_each_gpu() -> None:
    latest = judgment(8)
    text = unstyle(render_text(latest.report))
    lines = re.findall(r"^ *(\w+ (?:thermal\.hw|pcie\.width)  .*?): ", text, re.MULTILINE)
    assert lines == ["critical thermal.hw  GPU 0-7", "warning pcie.width  GPU 1"]
    page = document(latest, FACTS).decode()
    listed = page.partition('id="findings"')[2]
    subjects = re.findall(r'<li id="finding-[0-9]+"[^>]* data-subject="([^"]*)"', listed)
    assert subjects == ["GPU 0-7", "GPU 1"]
    links = set(re.findall(r'href="#(finding-[0-9]+)"', page))
    assert links <= set(re.findall(r'id="(finding-[0-9]+)"', page))
    codes = [each["code"] for each in json.loads(render_json(latest.report))["findings"]]
    assert codes == ["thermal.hw"] * 8 + ["pcie.width"]


def process(**facts: str) -> Sample:
    return GPU_PROCESS_INFO.sample(1, "0", "GPU-0", *(facts.get(label, "") for label in GPU_PROCESS_INFO.labels[2:]))


def allocated(value: float = 1.0, /, **labels: str) -> Sample:
    return GPU_ALLOCATED.sample(value, "0", "GPU-0", *(labels.get(name, "") for name in GPU_ALLOCATED.labels[2:]))


ALLOCATED = allocated(0.0)


@pytest.mark.parametrize(
    ("samples", "known"),
    [
        ([], False),
        ([process(pid="9", user="ada")], False),
        ([services.GPU_HOST_SERVICE_RUNNING.sample(1, "nvidia-fabricmanager")], False),
        ([access.GPU_EXPORTER_DEGRADED_INFO.sample(1, "pcie_aer", "no_permission")], False),
        ([process(pid="9", slurm_job_id="4711")], True),
        ([process(pid="9", pod_uid="0a1b")], True),
        ([ALLOCATED], True),
        ([services.GPU_HOST_SERVICE_RUNNING.sample(1, "slurmd")], True),
        ([services.GPU_HOST_SERVICE_RUNNING.sample(0, "kubelet")], True),
        ([access.GPU_EXPORTER_DEGRADED_INFO.sample(1, "slurm_jobs", "no_permission")], True),
    ],
)
def test_a_scheduler_is_known_by_its_service_its_jobs_or_its_options(samples: Iterable[Sample], *, known: bool) -> None:
    up = GPU_UP.sample(1, "0", "GPU-0")
    assert scheduler_known(evidence_of((0.0, [up, *samples]))) is known


def test_without_a_scheduler_nobody_is_asked_to_drain() -> None:
    latest, cluster = judgment(2), judgment(2, ALLOCATED).report
    alone = latest.report
    page = document(latest, FACTS).decode().partition("<main>")[2]
    assert "rain" not in re.sub(r'data-[a-z]+="[^"]*"|<a href[^>]*>[^<]*</a>[^<]*', "", page)
    assert not alone.scheduled
    assert cluster.scheduled
    for report, words in ((alone, ("use it, but look", "take it out of use")), (cluster, ("watch", "drain"))):
        for each in (report, report_from_json(render_json(report))):
            text = unstyle(render_text(each))
            assert f"then critical: {words[1]}" in text
            assert ("rain" in text) is report.scheduled
    values = [[gpu["verdict"] for gpu in json.loads(render_json(each))["gpus"]] for each in (alone, cluster)]
    assert values[0] == values[1]
    summed_up = {json.loads(render_json(each))["summary"].partition(".")[0] for each in (alone, cluster)}
    assert summed_up <= {"keep", "watch", "drain", "not read"}


def test_no_advice_asks_a_desk_to_drain_and_none_shows_the_place_of_the_verb() -> None:
    advice = [*(check.advice for check in CHECKS), *LINK_ADVICE.values()]
    assert sum("rain" in CLUSTER.decision(each) for each in advice) > 10
    assert [each for each in advice if re.search(r"\b[Dd]rain", DESK.decision(each))] == []
    assert [each for each in advice if "{" in "".join(each)] == []


def test_the_line_of_the_host_shows_its_busiest_disk_and_adapter() -> None:
    disks, lan = {"sda": 0.1, "nvme0n1": 0.9, "sdb": 0.2}, {"eno1": 2e8, "eno2": 7e8, "eno3": 1e8}

    def samples(at: float) -> Iterator[Sample]:
        yield from (disk.GPU_HOST_DISK_BUSY_SECONDS_TOTAL.sample(at * share, name) for name, share in disks.items())
        for name, rate in lan.items():
            yield network_interfaces.GPU_HOST_NETWORK_RECEIVE_BYTES_TOTAL.sample(at * rate, name)
            yield network_interfaces.GPU_HOST_NETWORK_SPEED_BYTES_PER_SECOND.sample(1e9, name)

    line = summaries(evidence_of(*((at, samples(at)) for at in (0.0, 60.0))))[Area.HOST] or ""
    assert {"busiest disk 90%", "busiest adapter 70% of line rate"} <= set(line.split("; "))


POD = GpuOwner(namespace="ml", pod="train-0")
JOB = GpuOwner(slurm_job_id="42", user="alice", account="physics")
BOB = GpuOwner(user="bob")


def test_owners_are_called_as_in_the_alerts_the_first_by_name_and_the_others_counted() -> None:
    owners = (POD, JOB, GpuOwner(slurm_job_id="42"), BOB)
    assert [each.text for each in owners] == ["pod ml/train-0", "Slurm job 42 of alice", "Slurm job 42", "user bob"]
    assert owners_text(GpuOwner(user=f"u{n}") for n in range(5)) == "user u0, user u1, user u2 and 2 more"
    assert owners_text([]) == ""


IN_POD = {"workload_namespace": "ml", "workload_pod": "train-0"}
OF_POD = tuple(allocated(**IN_POD, workload_container=container) for container in "ab")
OF_JOB = allocated(slurm_job_id="42", user="alice", account="physics")


@pytest.mark.parametrize(
    ("samples", "owners"),
    [
        ((), ()),
        ((ALLOCATED,), ()),
        # One and the same, given it and at work on it.
        ((*OF_POD, process(pid="1", user="root", pod_uid="u", **IN_POD)), (POD,)),
        # The prolog knows the account, and the name of a user that the process has as a number.
        ((OF_JOB, process(pid="1", user="1000", slurm_job_id="42")), (JOB,)),
        ((process(pid="1", user="alice", slurm_job_id="42"),), (GpuOwner(slurm_job_id="42", user="alice"),)),
        # Somebody beside the job, whom no scheduler knows.
        ((OF_JOB, process(user="bob")), (JOB, BOB)),
        # A process in a pod without a name is one of the pods': root is no owner.
        ((allocated(**IN_POD), process(user="root", pod_uid="u")), (POD,)),
        ((process(user="root", pod_uid="u"),), (GpuOwner(user="root"),)),
        ((process(), process(pid="1")), ()),
    ],
)
def test_owners_are_those_who_were_given_the_gpu_and_those_who_use_it(
    samples: tuple[Sample, ...], owners: tuple[GpuOwner, ...]
) -> None:
    evidence = evidence_of((0.0, [GPU_UP.sample(1, "0", "GPU-0"), *samples]))
    assert owners_of(evidence.gpus[0]) == owners


def look_at_pair_of_job(**work: Any) -> Report:
    """Two A10, of which Slurm gave the first away."""
    scenario = replace(load_scenario("dual-a10"), events=(), **work)
    return look_at(replace(scenario, allocations=(Allocation(0, slurm=Slurm("42", "alice", "physics")),)), 60)


def test_a_gpu_that_was_given_away_and_has_no_process_is_told_with_its_owner() -> None:
    gpus = (replace(gpu, load=replace(gpu.load, utilization=0.0)) for gpu in load_scenario("dual-a10").gpus)
    report = look_at_pair_of_job(gpus=tuple(gpus), processes=())
    found = finding(report, "work.allocated_unused")
    assert found.measured == "allocated to Slurm job 42 of alice, no process on it"
    assert "work.allocated_unused" not in codes(report, "GPU 1")
    assert [gpu.owners for gpu in report.gpus] == [(JOB,), ()]
    text = render_text(report)
    assert "        held by   Slurm job 42 of alice\n" in text
    assert text.count("; held by Slurm job 42 of alice") == 1
    assert [gpu["held_by"] for gpu in json.loads(render_json(report))["gpus"]] == [
        [{"namespace": None, "pod": None, "slurm_job_id": "42", "user": "alice", "account": "physics"}],
        [],
    ]


def test_a_gpu_that_its_job_uses_is_no_finding() -> None:
    report = look_at_pair_of_job()
    assert "work.allocated_unused" not in codes(report, "GPU 0")
    assert JOB in report.gpus[0].owners


def test_a_look_at_a_host_can_ask_who_was_given_its_gpus() -> None:
    flags = {option.key for option in all_options(COLLECTOR_SWITCHES) if applies(option)}
    kubernetes = ["kubernetes.container-logs", "kubernetes.pod-resources-socket"]
    of_schedulers = sorted(key for key in flags if key.startswith(("kubernetes.", "slurm.")))
    assert of_schedulers == [*kubernetes, "slurm.gpu-numbers", "slurm.jobs-directory"]


@pytest.fixture(scope="module")
def healthy() -> Judgment:
    def samples(at: float) -> Iterator[Sample]:
        for gpu in (("0", "GPU-a"), ("1", "GPU-b")):
            yield from loaded(at, 0.98, gpu)
            yield GPU_PROCESSES.sample(1, *gpu, "compute")
            yield GPU_THROTTLE_SECONDS_TOTAL.sample(0.0, *gpu, "sw_power_cap")

    fed = Fed()
    fed.run(3 * MINUTE, samples)
    assert fed.latest is not None
    return fed.latest


def test_without_a_finding_nothing_holds_a_busy_gpu_back(healthy: Judgment) -> None:
    report = healthy.report
    assert report.findings == ()
    assert [gpu.bottleneck.because.endswith(UNHINDERED) for gpu in report.gpus] == [True, True]
    assert headline(report) == "2 GPUs: all busy"


@pytest.mark.parametrize(
    ("code", "group", "hindered"),
    [
        ("gpu.lost", "critical", ["0"]),
        ("thermal.hw", "critical if it lasts", ["0"]),
        ("power.cap", "info", ["0"]),
        ("storage.nvme", "warnings", ["0", "1"]),
    ],
)
def test_the_first_line_names_a_finding_and_no_gpu_beside_it_is_unhindered(
    healthy: Judgment, code: str, group: str, hindered: list[str]
) -> None:
    check = BY_CODE[code]
    value = None if check.measure is None else check.measure.unit.scale
    gpu = healthy.host.gpus[0]
    about = of_host(code, "1", value) if check.of_host else of_gpu(code, gpu, "1", value=value)
    report = HostJudge(JudgedHost("host")).judge(healthy.host, more=[about]).report
    assert headline(report).endswith(f"; {group}: {code}")
    assert [gpu.gpu for gpu in report.gpus if not gpu.bottleneck.because.endswith(UNHINDERED)] == hindered
