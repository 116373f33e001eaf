"""Pods by the kubelet's answers, and names of containers by its links to their logs."""

import dataclasses
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Event

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kubelet import Claim, Held, kubelet, response
from tests.rig import Rig, only, pair, three

from gpu_triage.errors import ConfigError, HostReadFailed
from gpu_triage.machine import Holder, Moment, dra_name
from gpu_triage.options.config import Config
from gpu_triage.read.processes import pods as pod_resources
from gpu_triage.read.processes.pods import (
    NO_WORKLOAD,
    ContainerLinks,
    PodDirectory,
    in_common,
    parse_holders,
    parse_links,
    wire_fields,
)
from gpu_triage_simulator import VirtualClock, simulated_machine

pytestmark = pytest.mark.slow

GPU = "GPU-7c963d6b-0fa3-bd71-22a1-4e40dbd03047"
OTHER = "GPU-5cf2f180-be81-b6eb-2ba5-343d3f7c76e5"
MIG = "MIG-c6d4f1ef-42e4-5de3-91c7-45d71c87eb3f"
TRAINER = Holder("train-0", "research", "trainer")


def at(seconds: float) -> Moment:
    return Moment(monotonic=seconds, wall=0.0)


def ask(socket: Path) -> bytes:
    return pod_resources.kubelet(socket, deadline_seconds=0.2)()


def test_a_kubelet_is_asked_over_its_socket(tmp_path: Path) -> None:
    socket = tmp_path / "kubelet.sock"
    answer = response(Held("train-0", "research", "trainer", (GPU,)), Held("web", "default", "nginx", ()))
    with kubelet(socket, lambda: answer):
        assert list(parse_holders(ask(socket))) == [(GPU, TRAINER)]


def test_a_kubelet_that_hangs_is_given_up_at_the_deadline(tmp_path: Path) -> None:
    released = Event()

    def hang() -> bytes:
        released.wait()
        return b""

    with kubelet(tmp_path / "kubelet.sock", hang):
        with pytest.raises(HostReadFailed, match="deadline_exceeded"):
            ask(tmp_path / "kubelet.sock")
        released.set()


def test_without_the_extra_the_message_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "grpc", None)  # as if it were not there
    with pytest.raises(ConfigError, match=r"pip install gpu-triage-exporter\[kubernetes\]"):
        pod_resources.kubelet(Path("/var/lib/kubelet/pod-resources/kubelet.sock"))


def test_shares_of_a_gpu_count_as_the_gpu_and_other_devices_do_not_count() -> None:
    held = (
        Held("a", "n", "c", (f"{GPU}::0", "nvidia0")),
        Held("b", "n", "c", (f"{GPU}::1", MIG), "nvidia.com/mig-1g.10gb"),
        Held("b", "n", "d", ("0000:65:00.2",), "intel.com/sriov"),
    )
    one, other = Holder("a", "n", "c"), Holder("b", "n", "c")
    assert list(parse_holders(response(*held))) == [(GPU, one), (GPU, other), (MIG, other)]


@pytest.mark.parametrize(
    ("claim", "minor"),
    [
        (Claim("gpu.nvidia.com", "gpu-11"), 11),
        (Claim("gpu.nvidia.com", "gpu-0-mig-1g.10gb-19-4"), 0),
        (Claim("gpu.nvidia.com", "gpu-0-mig-9-0-4"), 0),
        (Claim("gpu.nvidia.com", "gpu-vfio-0"), None),
        (Claim("compute-domain.nvidia.com", "channel-0"), None),
        (Claim("gpu.intel.com", "gpu-3"), None),
    ],
)
def test_gpus_that_dra_gave_away_are_told_by_their_minor_number(claim: Claim, minor: int | None) -> None:
    held = list(parse_holders(response(Held(*TRAINER[:3], (), claims=(claim,)))))
    assert held == ([] if minor is None else [(dra_name(minor), TRAINER)])


def test_fields_that_are_not_known_are_skipped() -> None:
    known = response(Held("train-0", "research", "trainer", (GPU,)))
    unknown = b"\x28\x96\x01" + b"\x31" + bytes(8) + b"\x3d" + bytes(4) + b"\x42\x03abc"
    assert list(parse_holders(unknown + known + unknown)) == [(GPU, TRAINER)]


@pytest.mark.parametrize(
    "message",
    [
        *(b"\x0a", b"\x0a\x05abc", b"\x08", b"\x0b", b"\x08" + b"\xff" * 11),
        *(b"\x0a\x03\x0a\x05a", b"\x0a\x04\x0a\x02\xff\xff"),
    ],
    ids=["no length", "cut", "no number", "group", "endless number", "cut inside", "no UTF-8"],
)
def test_a_broken_answer_is_malformed_and_the_last_one_stays(message: bytes) -> None:
    answers = [response(Held(*TRAINER[:3], (GPU,))), message]
    pods = PodDirectory(lambda: answers.pop(0), 15.0)
    pods.refresh(at(0.0))
    with pytest.raises(HostReadFailed, match="malformed"):
        pods.refresh(at(5.0))
    assert pods.holders({GPU}, at(5.0)) == {TRAINER}


@pytest.mark.parametrize(
    ("holders", "certain"),
    [
        ([], NO_WORKLOAD),
        ([TRAINER], TRAINER),
        ([TRAINER, TRAINER._replace(container="logger")], Holder("train-0", "research", "")),
        ([TRAINER, TRAINER._replace(namespace="other")], NO_WORKLOAD),
        ([TRAINER, TRAINER._replace(pod="train-1")], NO_WORKLOAD),
    ],
)
def test_only_what_all_holders_have_in_common_is_certain(holders: list[Holder], certain: Holder) -> None:
    assert in_common(frozenset(holders)) == certain


@given(st.binary(), st.integers(0, 80))
def test_any_bytes_are_an_answer_or_a_value_error(junk: bytes, cut: int) -> None:
    whole = response(Held(*TRAINER[:3], (GPU,)))
    for message in (junk, whole[:cut] + junk, whole[:cut] + junk + whole[cut:]):
        with suppress(ValueError):
            list(parse_holders(message))
        with suppress(ValueError):
            list(wire_fields(message))


class Kubelet:
    """Answers a PodDirectory as a test tells it to."""

    def __init__(self, *held: Held) -> None:
        self.answer: Callable[[], bytes] = lambda: response(*held)

    def __call__(self) -> bytes:
        return self.answer()

    def fails(self) -> bytes:
        raise HostReadFailed("unavailable", "kubelet.sock", "connection refused")


@pytest.fixture
def running() -> Iterator[tuple[Rig, Kubelet]]:
    """An exporter on a node of a cluster; GPU 0's and 1's pods are known."""
    collectors = ("power", "processes", "pod_names", "host_cpu", "identity")
    config = only(*collectors, kubernetes_pod_resources_socket=Path("/kubelet.sock"))
    shares = (Held(name, "n", "c", (f"{OTHER}::{number}",)) for number, name in enumerate("ab"))
    clock, asked = VirtualClock(), Kubelet(Held(*TRAINER[:3], (GPU,)), *shares)
    with simulated_machine(three("h100-8"), clock=clock, when_looked_at=True) as simulated:
        simulated.machine = dataclasses.replace(simulated.machine, pods=PodDirectory(asked, 15.0))
        yield Rig(simulated, clock, config), asked


def pod_of(rig: Rig, gpu: str) -> set[tuple[str, str, str]]:
    return {
        (labels["workload_pod"], labels["workload_namespace"], labels["workload_container"])
        for labels, _ in rig.series("gpu_process_info", gpu=gpu)
    }


def test_processes_bear_the_names_of_the_one_container_that_holds_their_gpu(running: tuple[Rig, Kubelet]) -> None:
    rig, _ = running
    (rig.simulated.machine.procfs / "41000" / "cgroup").write_text("0::/system.slice/sshd.service\n")
    rig.run(10)
    names = {labels["pid"]: labels["workload_pod"] for labels, _ in rig.series("gpu_process_info", gpu="0")}
    assert (names["41000"], names["41001"]) == ("", "train-0")
    assert pod_of(rig, "0") == {TRAINER[:3], NO_WORKLOAD[:3]}  # one process is outside of any pod
    assert pod_of(rig, "1") == {NO_WORKLOAD[:3]}  # shared by two pods
    assert pod_of(rig, "2") == {NO_WORKLOAD[:3]}  # held by none
    assert rig.value("gpu_exporter_collector_success", collector="pod_names") == 1


def test_a_kubelet_that_fails_costs_the_names_and_is_counted(running: tuple[Rig, Kubelet]) -> None:
    rig, asked = running
    rig.run(10)
    asked.answer = asked.fails
    rig.run(10)
    assert pod_of(rig, "0") == {TRAINER[:3]}
    rig.run(20)
    assert pod_of(rig, "0") == {NO_WORKLOAD[:3]}
    assert len(rig.series("gpu_process_info")) == 24
    assert rig.value("gpu_exporter_collector_success", collector="pod_names") == 0
    assert (rig.value("gpu_exporter_errors_total", collector="pod_names", error="unavailable") or 0) >= 5
    assert rig.value("gpu_exporter_collector_success", collector="host_cpu") == 1


ID = "0c4e91d0" * 8
OTHER_ID = "1c4e91d0" * 8
"""GPU 0 of the simulated h100-8, whose processes are in the container ID."""


@pytest.mark.parametrize(
    ("name", "workload"),
    [
        (f"train-0_research_trainer-{ID}.log", Holder("train-0", "research", "trainer")),
        (f"plugin-x7k2p_operator_device-plugin-{ID}.log", Holder("plugin-x7k2p", "operator", "device-plugin")),
        (f"etcd-7.example.org_kube-system_etcd-{ID}.log", Holder("etcd-7.example.org", "kube-system", "etcd")),
        (f"{'a' * 190}_n_c-{ID[:50]}.log", None),
        (f"train-0_research_trainer-{ID}", None),
        (f"train-0_trainer-{ID}.log", None),
        (f"a_b_c_d-{ID}.log", None),
        (f"train-0_research_trainer-{ID.upper()}.log", None),
        ("README", None),
        ("", None),
    ],
)
def test_a_link_names_pod_namespace_container_and_id(name: str, workload: Holder | None) -> None:
    assert list(parse_links((name,))) == ([] if workload is None else [(ID, workload)])


def test_links_are_listed_anew_and_never_opened(tmp_path: Path) -> None:
    links = ContainerLinks(tmp_path)
    (tmp_path / f"train-0_research_trainer-{ID}.log").symlink_to("/nowhere/0.log")
    assert links.holders({ID}, at(0.0)) == frozenset()
    assert links.refresh(at(0.0)) == ()
    assert links.holders({ID}, at(9e9)) == {Holder("train-0", "research", "trainer")}
    (tmp_path / f"web_default_nginx-{OTHER_ID}.log").symlink_to("/nowhere/1.log")
    assert links.refresh(at(0.0)) == ()
    assert links.holders({OTHER_ID}, at(0.0)) == {Holder("web", "default", "nginx")}


def test_a_process_on_a_shared_gpu_has_the_names_of_its_own_pod(tmp_path: Path) -> None:
    """The kubelet names both pods that share the GPU; the process's container id says which one it is of."""
    (tmp_path / f"train-0_research_trainer-{ID}.log").symlink_to("/nowhere/0.log")
    shares = (Held("train-0", "research", "trainer", (f"{GPU}::0",)), Held("web", "default", "nginx", (f"{GPU}::1",)))
    clock = VirtualClock()
    config = Config(kubernetes_pod_resources_socket=tmp_path / "kubelet.sock", kubernetes_container_logs=tmp_path)
    with simulated_machine(pair("h100-8"), clock=clock, when_looked_at=True) as simulated:
        pods = PodDirectory(lambda: response(*shares), 15.0)
        for containers, named in ((None, ""), (ContainerLinks(tmp_path), "train-0")):
            simulated.machine = dataclasses.replace(simulated.machine, pods=pods, containers=containers)
            rig = Rig(simulated, clock, config)
            rig.run(10)
            assert {labels["workload_pod"] for labels, _ in rig.series("gpu_process_info", gpu="0")} == {named}
            given_to = {labels["workload_pod"] for labels, _ in rig.series("gpu_allocated", gpu="0")}
            assert given_to == {"train-0", "web"}
