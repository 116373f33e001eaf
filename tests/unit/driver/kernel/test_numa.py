"""Which NUMA nodes are on a GPU's side of the host.

The file: Documentation/ABI/stable/sysfs-devices-node and node_read_distance of drivers/base/node.c, a number for each
node that is online.
"""

import pytest
from tests.host_tree import HostTree

from gpu_triage.driver.kernel.numa import near_nodes, read_distances, read_numa_nodes
from gpu_triage.errors import HostReadFailed

NODES = "sys/devices/system/node"


def nodes(host: HostTree, cpus: dict[int, str], of: int, distances: str) -> frozenset[int]:
    """The nodes near to node `of`, on a host with these CPUs by node and these distances from it."""
    host.write({f"{NODES}/node{node}/cpulist": f"{each}\n" for node, each in cpus.items()})
    host.write({f"{NODES}/node{of}/distance": f"{distances}\n", f"{NODES}/online": "0-9\n"})
    return near_nodes(of, read_numa_nodes(host.sysfs), read_distances(host.sysfs, of))


EIGHT = {node: f"{node * 16}-{node * 16 + 15}" for node in range(8)}


@pytest.mark.parametrize(
    ("cpus", "of", "distances", "near"),
    [
        # DGX A100: two EPYC 7742 with NPS4. Its GPUs are on nodes 3, 1, 7 and 5 (nvidia-smi topo -m).
        (EIGHT, 3, "12 12 12 10 32 32 32 32", {0, 1, 2, 3}),
        (EIGHT, 7, "32 32 32 32 12 12 12 10", {4, 5, 6, 7}),
        # Two EPYC 7551: four dies a socket.
        (EIGHT, 0, "10 16 16 16 32 32 32 32", {0, 1, 2, 3}),
        # intel/cri-resource-manager #359: SNC on two sockets, and memory without CPUs on nodes 4 and 5.
        (dict(list(EIGHT.items())[:4]) | {4: "", 5: ""}, 1, "11 10 21 21 28 28", {0, 1}),
        # Two sockets, as firmware has them, and as the kernel has them without (REMOTE_DISTANCE).
        ({0: "0-31", 1: "32-63"}, 0, "10 21", {0}),
        ({0: "0-31", 1: "32-63"}, 1, "20 10", {1}),
        # GB200, its distances as assumed: two Grace CPUs, and a node for the memory of each GPU.
        ({0: "0-71", 1: "72-143", 2: "", 10: ""}, 0, "10 40 80 80", {0}),
        ({0: "0-71", 1: "72-143", 2: "", 10: ""}, 10, "120 80 160 10", {1}),
        # One socket with NPS4: no node is far.
        (dict(list(EIGHT.items())[:4]), 2, "12 12 10 12", {0, 1, 2, 3}),
    ],
)
def test_nodes_of_one_socket_are_near_and_those_of_another_are_not(
    host: HostTree, cpus: dict[int, str], of: int, distances: str, near: set[int]
) -> None:
    assert nodes(host, cpus, of, distances) == near


def test_without_distances_only_the_node_itself_is_near(host: HostTree) -> None:
    host.write({f"{NODES}/node{node}/cpulist": f"{cpus}\n" for node, cpus in EIGHT.items()})
    assert read_distances(host.sysfs, 3) == {}
    assert near_nodes(3, EIGHT, {}) == {3}
    assert near_nodes(9, EIGHT, {}) == frozenset()
    assert near_nodes(-1, EIGHT, {}) == frozenset()


@pytest.mark.parametrize("text", ["10 21 21", "10", "10 far", ""])
def test_distances_that_fit_no_nodes_fail(host: HostTree, text: str) -> None:
    with pytest.raises(HostReadFailed, match="malformed"):
        nodes(host, {0: "0-31", 1: "32-63"}, 0, text)
