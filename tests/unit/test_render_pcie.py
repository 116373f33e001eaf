from __future__ import annotations

from tests.nvml_bench import shown

from gpu_triage.collectors import pcie, pcie_limits, pcie_throughput, topology
from gpu_triage.collectors.contract import GpuLabels
from gpu_triage.collectors.pcie_limits import LinkExpectation
from gpu_triage.hardware.pcie import PcieReading
from gpu_triage.hardware.pcie_limits import PcieLimitsReading
from gpu_triage.hardware.pcie_throughput import PcieThroughputReading
from gpu_triage.hardware.topology import PeerReading, TopologyReading

GPU = GpuLabels("0", "GPU-a")


def test_link() -> None:
    reading = PcieReading(
        generation=4,
        width=8,
        generation_transitions=3,
        width_transitions=1,
        transmit_bytes=2e9,
        receive_bytes=6e9,
        replays=17.0,
    )
    assert shown(pcie.render(reading, GPU)) == [
        'gpu_pcie_link_generation{gpu="0",uuid="GPU-a"} 4.0',
        'gpu_pcie_link_width{gpu="0",uuid="GPU-a"} 8.0',
        'gpu_pcie_link_transitions_total{gpu="0",uuid="GPU-a",attribute="generation"} 3.0',
        'gpu_pcie_link_transitions_total{gpu="0",uuid="GPU-a",attribute="width"} 1.0',
        'gpu_pcie_transmit_bytes_total{gpu="0",uuid="GPU-a"} 2000000000.0',
        'gpu_pcie_receive_bytes_total{gpu="0",uuid="GPU-a"} 6000000000.0',
        'gpu_pcie_replays_total{gpu="0",uuid="GPU-a"} 17.0',
    ]
    assert shown(pcie.render(PcieReading(None, None, None, None, None, None, None), GPU)) == []


def test_link_limits_and_expectation() -> None:
    limits = PcieLimitsReading(
        device_generation=5,
        device_width=16,
        slot_generation=4,
        slot_width=8,
        system_generation=4,
        system_width=16,
    )
    assert shown(pcie_limits.render(LinkExpectation(limits, generation=4, width=8), GPU)) == [
        'gpu_pcie_link_device_max_generation{gpu="0",uuid="GPU-a"} 5.0',
        'gpu_pcie_link_device_max_width{gpu="0",uuid="GPU-a"} 16.0',
        'gpu_pcie_link_slot_max_generation{gpu="0",uuid="GPU-a"} 4.0',
        'gpu_pcie_link_slot_max_width{gpu="0",uuid="GPU-a"} 8.0',
        'gpu_pcie_link_expected_generation{gpu="0",uuid="GPU-a"} 4.0',
        'gpu_pcie_link_expected_width{gpu="0",uuid="GPU-a"} 8.0',
    ]
    nothing = LinkExpectation(PcieLimitsReading(None, None, None, None, None, None), None, None)
    assert shown(pcie_limits.render(nothing, GPU)) == []


def test_traffic() -> None:
    reading = PcieThroughputReading({"transmit": 1.5e9, "receive": 0.0})
    assert shown(pcie_throughput.render(reading, GPU)) == [
        'gpu_pcie_throughput_bytes_per_second{gpu="0",uuid="GPU-a",direction="transmit"} 1500000000.0',
        'gpu_pcie_throughput_bytes_per_second{gpu="0",uuid="GPU-a",direction="receive"} 0.0',
    ]
    assert shown(pcie_throughput.render(PcieThroughputReading({}), GPU)) == []


def test_topology() -> None:
    peers = (
        PeerReading("1", "GPU-b", (("read", "ok"), ("atomics", "not_supported")), "pxb"),
        PeerReading("2", "GPU-c", (), None),
    )
    assert shown(topology.render(TopologyReading(1, peers), GPU)) == [
        'gpu_numa_node{gpu="0",uuid="GPU-a"} 1.0',
        'gpu_p2p_status{gpu="0",uuid="GPU-a",peer_gpu="1",peer_uuid="GPU-b",capability="read",status="ok"} 1.0',
        (
            'gpu_p2p_status{gpu="0",uuid="GPU-a",peer_gpu="1",peer_uuid="GPU-b",capability="atomics",'
            'status="not_supported"} 1.0'
        ),
        'gpu_topology_info{gpu="0",uuid="GPU-a",peer_gpu="1",peer_uuid="GPU-b",level="pxb"} 1.0',
    ]


def test_a_node_that_firmware_does_not_tell_shows_and_one_that_is_not_known_does_not() -> None:
    assert shown(topology.render(TopologyReading(-1, ()), GPU)) == ['gpu_numa_node{gpu="0",uuid="GPU-a"} -1.0']
    assert shown(topology.render(TopologyReading(None, ()), GPU)) == []
