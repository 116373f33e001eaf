"""Names of containers by id, from what the kubelet calls the links to their logs."""

import dataclasses
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.kubelet import Held, response
from tests.rig import Rig, pair

from gpu_triage.errors import HostReadFailed
from gpu_triage.machine import Workload
from gpu_triage.options.config import Config
from gpu_triage.read.processes.pods import MAX_CONTAINERS, ContainerLinks, PodDirectory, parse_links
from gpu_triage_simulator import VirtualClock, simulated_machine

pytestmark = pytest.mark.slow

ID = "0c4e91d0" * 8
OTHER_ID = "1c4e91d0" * 8
GPU = "GPU-7c963d6b-0fa3-bd71-22a1-4e40dbd03047"
"""GPU 0 of the simulated h100-8, whose processes are in the container ID."""


@pytest.mark.parametrize(
    ("name", "workload"),
    [
        (f"train-0_research_trainer-{ID}.log", Workload("train-0", "research", "trainer")),
        (
            f"nvidia-device-plugin-daemonset-x7k2p_gpu-operator_nvidia-device-plugin-{ID}.log",
            Workload("nvidia-device-plugin-daemonset-x7k2p", "gpu-operator", "nvidia-device-plugin"),
        ),
        (
            f"etcd-node-7.example.org_kube-system_etcd-{ID}.log",
            Workload("etcd-node-7.example.org", "kube-system", "etcd"),
        ),
        (f"{'a' * 190}_n_c-{ID[:50]}.log", None),
        (f"train-0_research_trainer-{ID}", None),
        (f"train-0_trainer-{ID}.log", None),
        (f"a_b_c_d-{ID}.log", None),
        (f"train-0_research_trainer-{ID.upper()}.log", None),
        ("README", None),
        ("", None),
    ],
)
def test_a_link_names_pod_namespace_container_and_id(name: str, workload: Workload | None) -> None:
    assert parse_links((name,)) == ({} if workload is None else {ID: workload})


@given(st.lists(st.text(max_size=300)))
def test_any_names_are_links_or_nothing(names: list[str]) -> None:
    assert len(parse_links(tuple(names))) <= len(names)


def test_links_are_listed_anew_and_never_opened(tmp_path: Path) -> None:
    links = ContainerLinks(tmp_path)
    (tmp_path / f"train-0_research_trainer-{ID}.log").symlink_to("/nowhere/0.log")
    assert links.workload(ID) is None
    assert links.refresh() == ()
    assert links.workload(ID) == Workload("train-0", "research", "trainer")
    (tmp_path / f"web_default_nginx-{OTHER_ID}.log").symlink_to("/nowhere/1.log")
    assert links.refresh() == ()
    assert links.workload(OTHER_ID) == Workload("web", "default", "nginx")


def test_more_containers_than_a_node_has_are_left_out_and_said(tmp_path: Path) -> None:
    for number in range(MAX_CONTAINERS + 1):
        (tmp_path / f"pod-{number:05}_n_c-{number:064x}.log").touch()
    links = ContainerLinks(tmp_path)
    assert links.refresh() == ("too_many_containers",)
    assert links.workload(f"{MAX_CONTAINERS - 1:064x}") is not None
    assert links.workload(f"{MAX_CONTAINERS:064x}") is None


def test_a_folder_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(HostReadFailed, match="missing"):
        ContainerLinks(tmp_path / "containers").refresh()


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


def test_names_need_no_kubelet(tmp_path: Path) -> None:
    (tmp_path / f"train-0_research_trainer-{ID}.log").symlink_to("/nowhere/0.log")
    clock = VirtualClock()
    with simulated_machine(pair("h100-8"), clock=clock, when_looked_at=True) as simulated:
        simulated.machine = dataclasses.replace(simulated.machine, pods=None, containers=ContainerLinks(tmp_path))
        rig = Rig(simulated, clock, Config(kubernetes_container_logs=tmp_path))
        rig.run(10)
        named = {(labels["gpu"], labels["workload_pod"]) for labels, _ in rig.series("gpu_process_info")}
        assert named == {("0", "train-0"), ("1", "")}
        assert rig.series("gpu_allocated") == []
