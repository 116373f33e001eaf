from __future__ import annotations

from tests.nvml_bench import shown

from gpu_triage.read.gpu import topology
from gpu_triage.read.gpu.pcie import LinkExpectation, PcieLimitsReading
from gpu_triage.read.gpu.topology import PeerReading, TopologyReading
from gpu_triage.read.metrics.contract import GpuLabels
from gpu_triage.read.metrics.rendering import samples

GPU = GpuLabels("0", "GPU-a")


def test_link_limits_and_expectation() -> None:
    limits = PcieLimitsReading(
        device_generation=5,
        device_width=16,
        slot_generation=4,
        slot_width=8,
        system_generation=4,
        system_width=16,
    )
    assert shown(samples(LinkExpectation(limits, generation=4, width=8), GPU)) == [
        'gpu_pcie_link_device_max_generation{gpu="0",uuid="GPU-a"} 5.0',
        'gpu_pcie_link_device_max_width{gpu="0",uuid="GPU-a"} 16.0',
        'gpu_pcie_link_slot_max_generation{gpu="0",uuid="GPU-a"} 4.0',
        'gpu_pcie_link_slot_max_width{gpu="0",uuid="GPU-a"} 8.0',
        'gpu_pcie_link_expected_generation{gpu="0",uuid="GPU-a"} 4.0',
        'gpu_pcie_link_expected_width{gpu="0",uuid="GPU-a"} 8.0',
    ]
    nothing = LinkExpectation(PcieLimitsReading(None, None, None, None, None, None), None, None)
    assert shown(samples(nothing, GPU)) == []


def test_topology() -> None:
    peers = (
        PeerReading("1", "GPU-b", {"read": "ok", "atomics": "not_supported"}, "pxb"),
        PeerReading("2", "GPU-c", {"read": "ok"}, "pxb"),
        PeerReading("3", "GPU-d", {}, None),
    )
    there = 'gpu="0",uuid="GPU-a",peer_gpu="1",peer_uuid="GPU-b"'
    further = 'gpu="0",uuid="GPU-a",peer_gpu="2",peer_uuid="GPU-c"'
    assert shown(topology.render(TopologyReading(1, peers), GPU)) == [
        'gpu_numa_node{gpu="0",uuid="GPU-a"} 1.0',
        'gpu_p2p_peers{gpu="0",uuid="GPU-a",capability="read",status="ok",level="pxb"} 2.0',
        f'gpu_p2p_status{{{there},capability="read",status="ok",level="pxb"}} 1.0',
        f'gpu_p2p_status{{{there},capability="atomics",status="not_supported",level="pxb"}} 1.0',
        f'gpu_topology_info{{{there},level="pxb"}} 1.0',
        f'gpu_p2p_status{{{further},capability="read",status="ok",level="pxb"}} 1.0',
        f'gpu_topology_info{{{further},level="pxb"}} 1.0',
    ]


def test_the_distance_of_a_pair_is_told_by_the_gpu_of_the_lower_index() -> None:
    reading = TopologyReading(1, (PeerReading("0", "GPU-z", {}, "pxb"),))
    assert "gpu_topology_info" not in "".join(shown(topology.render(reading, GpuLabels("10", "GPU-a"))))


def test_a_node_that_firmware_does_not_tell_shows_and_one_that_is_not_known_does_not() -> None:
    assert shown(topology.render(TopologyReading(-1, ()), GPU)) == ['gpu_numa_node{gpu="0",uuid="GPU-a"} -1.0']
    assert shown(topology.render(TopologyReading(None, ()), GPU)) == []
