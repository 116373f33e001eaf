"""A host with more devices than anybody looks at costs a bounded number of series, and says what is left out."""

from tests.host_tree import HostTree

from gpu_triage.read.host.disk import HostDiskReader
from gpu_triage.read.host.infiniband import HostInfinibandReader
from gpu_triage.read.host.network_interfaces import HostNetworkReader
from gpu_triage.read.metrics.bounds import MOST_DEVICES

MANY = range(MOST_DEVICES + 5)


def test_disks_beyond_the_bound_are_left_out_and_that_is_said_once(host: HostTree) -> None:
    host.write({"proc/diskstats": "".join(f" 259 {i} nvme{i:04}n1 1 0 1 1 1 0 1 1 0 1 1\n" for i in MANY)})
    reader, round_ = HostDiskReader(), host.round()
    for _ in range(2):
        found = [disk.device for disk in reader.read(round_)]
    assert found == [f"nvme{i:04}n1" for i in range(MOST_DEVICES)]
    assert round_.failures == ["too_many_disks"]


def test_virtual_functions_give_way_to_the_interfaces_that_they_are_cut_from(host: HostTree) -> None:
    names = [f"ens1v{i:04}" for i in MANY]
    host.write({"proc/net/dev": "".join(f" {name}: {'1 ' * 16}\n" for name in [*names, "ens2"])})
    for name in [*names, "ens2"]:
        host.write({f"sys/class/net/{name}/device/numa_node": "0\n"})
    for name in names:
        host.link(f"sys/class/net/{name}/device/physfn", "..")
    reader, round_ = HostNetworkReader(), host.round()
    for _ in range(2):
        found = [interface.device for interface in reader.read(round_)]
    assert found == [*names[: MOST_DEVICES - 1], "ens2"]
    assert round_.failures == ["too_many_interfaces"]


def test_ports_beyond_the_bound_are_left_out_those_of_virtual_functions_first(host: HostTree) -> None:
    for i in MANY:
        host.write({f"sys/class/infiniband/mlx5_{i:04}/ports/1/state": "4: ACTIVE\n"})
        if i < MOST_DEVICES:
            host.link(f"sys/class/infiniband/mlx5_{i:04}/device/physfn", "..")
    reader, round_ = HostInfinibandReader(), host.round()
    for _ in range(2):
        found = [port.device for port in reader.read(round_)]
    assert found == [f"mlx5_{i:04}" for i in MANY if i < MOST_DEVICES - 5 or i >= MOST_DEVICES]
    assert round_.failures == ["too_many_ports"]
