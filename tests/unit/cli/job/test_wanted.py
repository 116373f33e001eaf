"""What a name on the command line may mean, and the matchers that find it."""

import re

import pytest

from gpu_triage.cli.fleet.fleet_view import matcher
from gpu_triage.cli.job.job_runs import Kind, Wanted, matchers, parse_wanted, workload_of


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("4711", Wanted((Kind.SLURM, Kind.POD, Kind.USER), "4711")),
        ("slurm:4711", Wanted((Kind.SLURM,), "4711")),
        ("research/train-0", Wanted((Kind.POD,), "train-0", "research")),
        ("pod:research/train-0", Wanted((Kind.POD,), "train-0", "research")),
        ("train-0", Wanted((Kind.POD, Kind.USER), "train-0")),
        ("user:ada", Wanted((Kind.USER,), "ada")),
        ("user:DOMAIN/ada", Wanted((Kind.USER,), "DOMAIN/ada")),
        ("user:4711", Wanted((Kind.USER,), "4711")),
        ("uid:1000", Wanted((Kind.POD, Kind.USER), "uid:1000")),
        ("4711-sweep-3", Wanted((Kind.POD, Kind.USER), "4711-sweep-3")),
    ],
)
def test_names(text: str, wanted: Wanted) -> None:
    assert parse_wanted(text) == wanted


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "names no job"),
        ("slurm:", "names no job"),
        ("/train-0", "NAMESPACE/POD"),
        ("research/", "NAMESPACE/POD"),
        ("4711_3", "scontrol show job 4711_3"),
        ("4711_[1-4]", "scontrol show job"),
        ("4711+1", "scontrol show job 4711+1"),
        ("slurm:4711_3", "scontrol show job 4711_3"),
        ("4711_3.0", "scontrol show job"),
        ("4711.0", "the job's number, 4711"),
        ("4711.extern", "the job's number, 4711"),
    ],
)
def test_what_names_no_job_says_what_would(text: str, said: str) -> None:
    with pytest.raises(ValueError, match=re.escape(said)):
        parse_wanted(text)


@pytest.mark.parametrize(
    ("pod", "workload"),
    [
        # StatefulSet, training operator, JobSet, indexed job, Deployment, bare pod
        ("train-0", "train"),
        ("pytorch-simple-worker-0", "pytorch-simple"),
        ("pytorch-simple-master-0", "pytorch-simple"),
        ("jobset-sample-workers-0-1-x7k2p", "jobset-sample"),
        ("pi-with-timeout-5wnpb", "pi-with-timeout"),
        ("vllm-7d9c5b8f6d-x7k2p", "vllm"),
        ("notebook", "notebook"),
        ("0", "0"),
        ("workers", "workers"),
        ("my-train", "my-train"),
    ],
)
def test_workloads_are_told_from_names_of_pods(pod: str, workload: str) -> None:
    assert workload_of(pod) == workload


def test_a_value_stays_inside_its_matcher() -> None:
    assert matcher("user", 'a"} or up{b="\\') == r'user="a\"} or up{b=\"\\"'
    assert matcher("user", "a\nb") == r'user="a\nb"'


def test_a_pod_is_looked_for_with_its_workload_and_as_text_not_as_a_pattern() -> None:
    found = matchers(parse_wanted("research/tr.in-0"))[Kind.POD]
    pattern = re.fullmatch(r'workload_pod=~"(.*)",workload_namespace="research"', found)
    assert pattern is not None
    known = re.compile(pattern[1].replace("\\\\", "\\"))
    assert [name for name in ("tr.in-0", "tr.in-1", "train-0", "tr.in", "xtr.in-0") if known.fullmatch(name)] == [
        "tr.in-0",
        "tr.in-1",
        "tr.in",
    ]
