"""Readers of the PCIe link, of what it should do, and of how GPUs reach each other."""

import dataclasses
from pathlib import Path

import pynvml
import pytest
from tests.nvml_bench import Bench, BenchMaker, says, shown

from gpu_triage.options.config import Config
from gpu_triage.read.gpu import topology
from gpu_triage.read.gpu.pcie import ExpectedLinkReader, PcieReader, PcieReading, read_pcie_limits, read_pcie_throughput
from gpu_triage.read.gpu.topology import PeerReading, TopologyReading, read_topology
from gpu_triage.read.metrics.contract import GpuLabels


def expected(nvml: Bench, config: Config | None = None, gpu: int = 0) -> tuple[int | None, int | None]:
    reading = ExpectedLinkReader(config or Config()).read(nvml.round(gpu))
    return reading.generation, reading.width


def test_a_link_that_lost_half_its_lanes(bench: BenchMaker) -> None:
    nvml = bench("dual-a10")
    reading = PcieReader(15.0, 60.0).read(nvml.round())
    assert (reading.generation, reading.width) == (4, 8)
    assert (reading.transmit_bytes, reading.receive_bytes) == (None, None)  # a driver from before the counters
    assert expected(nvml) == (4, 16)


def test_changes_of_the_link_are_counted_and_a_reading_that_fails_is_none(bench: BenchMaker) -> None:
    nvml, reader = bench(), PcieReader(15.0, 60.0)
    counts = []
    for generation in (4, 4, 1, 4):
        nvml.answer("nvmlDeviceGetCurrPcieLinkGeneration", says(generation))
        counts.append(reader.read(nvml.round()).generation_transitions)
    nvml.answer("nvmlDeviceGetCurrPcieLinkGeneration", pynvml.NVML_ERROR_UNKNOWN)
    counts.append(reader.read(nvml.round()).generation_transitions)
    assert counts == [0, 0, 1, 2, 2]


def test_a_gpu_that_is_not_on_pcie_has_no_link_at_all(bench: BenchMaker) -> None:
    nvml = bench("h100-8")
    nvml.answer("nvmlDeviceGetBusType", says(3))
    assert PcieReader(15.0, 60.0).read(nvml.round()) == PcieReading(None, None, None, None, None, None, None)
    assert read_pcie_throughput(nvml.round()).bytes_per_second == {}
    assert expected(nvml, Config(expect_pcie_generation=5, expect_pcie_width=16)) == (None, None)
    assert nvml.calls("nvmlDeviceGetCurrPcieLinkWidth") == 0


@pytest.mark.parametrize(("card", "slot", "system", "least"), [(5, 5, 4, 4), (5, 3, 5, 3), (3, 5, 5, 3), (4, 4, 4, 4)])
def test_a_link_is_expected_to_do_what_all_can(
    bench: BenchMaker, card: int, slot: int, system: int, least: int
) -> None:
    nvml = bench()
    speeds = {3: "8.0", 4: "16.0", 5: "32.0"}
    port = nvml.machine.sysfs / "bus" / "pci" / "devices" / "0000:64:00.0"
    (port / "max_link_speed").write_text(f"{speeds[slot]} GT/s PCIe\n")
    nvml.answer("nvmlDeviceGetGpuMaxPcieLinkGeneration", says(card))
    nvml.answer("nvmlDeviceGetMaxPcieLinkGeneration", says(system))
    reading = read_pcie_limits(nvml.round())
    assert (reading.device_generation, reading.slot_generation, reading.system_generation) == (card, slot, system)
    assert expected(nvml) == (least, 16)
    (port / "max_link_width").write_text("8\n")
    assert expected(nvml) == (least, 8)
    nvml.answer("nvmlDeviceGetMaxPcieLinkWidth", says(4))
    assert expected(nvml) == (least, 4)


def test_the_cards_generation_is_the_kernels_where_the_driver_does_not_tell(bench: BenchMaker) -> None:
    nvml = bench("dual-a10")
    nvml.answer("nvmlDeviceGetGpuMaxPcieLinkGeneration", pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    assert read_pcie_limits(nvml.round()).device_generation == 4


def test_a_declared_expectation_beats_the_derived_one(bench: BenchMaker) -> None:
    nvml = bench("dual-a10")
    assert expected(nvml, Config(expect_pcie_generation=3)) == (3, 16)
    assert expected(nvml, Config(expect_pcie_width=8)) == (4, 8)


def test_without_sysfs_the_driver_alone_says_what_to_expect(bench: BenchMaker, tmp_path: Path) -> None:
    nvml = bench("dual-a10")
    nvml.machine = dataclasses.replace(nvml.machine, sysfs=tmp_path)
    reading = read_pcie_limits(nvml.round())
    assert (reading.slot_generation, reading.device_width) == (None, None)
    assert expected(nvml) == (4, 16)


def test_peers_are_named_by_index_and_uuid_and_asked_for_every_capability(bench: BenchMaker) -> None:
    nvml = bench("dual-a10")
    here, there = read_topology(nvml.round(0)), read_topology(nvml.round(1))
    assert (here.numa_node, there.numa_node) == (0, 1)
    (peer,) = here.peers
    assert (peer.gpu, peer.uuid) == ("1", "GPU-ffffffff-1111-2222-3333-444444444444")
    assert peer.p2p == {
        "read": "ok",
        "write": "ok",
        "nvlink": "not_supported",
        "atomics": "not_supported",
        "prop": "not_supported",
    }
    assert (peer.level, there.peers[0].level) == ("sys", "sys")


def test_read_is_capability_zero(bench: BenchMaker) -> None:
    nvml, asked = bench(), []

    def status(_here: object, _there: object, capability: int, out: object) -> int:
        asked.append(capability)
        out._obj.value = 0  # type: ignore[attr-defined]  # a ctypes reference
        return 0

    nvml.answer("nvmlDeviceGetP2PStatus", status)
    read_topology(nvml.round())
    assert asked == [0, 1, 2, 3, 4]


def test_one_pair_without_p2p_does_not_silence_the_others(bench: BenchMaker) -> None:
    nvml, asked = bench("h100-8"), []

    def status(_here: object, there: object, _capability: int, out: object) -> int:
        asked.append(there)
        if len(asked) <= 5:
            return int(pynvml.NVML_ERROR_NOT_SUPPORTED)
        out._obj.value = 0  # type: ignore[attr-defined]  # a ctypes reference
        return 0

    nvml.answer("nvmlDeviceGetP2PStatus", status)
    assert [len(peer.p2p) for peer in read_topology(nvml.round()).peers] == [0, 5, 5, 5, 5, 5, 5]
    assert [len(peer.p2p) for peer in read_topology(nvml.round()).peers] == [0, 5, 5, 5, 5, 5, 5]
    assert len(asked) == 65


GPU = GpuLabels("0", "GPU-a")


def test_a_node_shows_even_if_the_firmware_does_not_tell_it_unless_it_is_not_known(bench: BenchMaker) -> None:
    nvml = bench()
    (nvml.machine.sysfs / "bus" / "pci" / "devices" / "0000:65:00.0" / "numa_node").write_text("-1\n")
    assert read_topology(nvml.round()).numa_node == -1
    assert shown(topology.render(TopologyReading(-1, ()), GPU)) == ['gpu_numa_node{gpu="0",uuid="GPU-a"} -1.0']
    assert shown(topology.render(TopologyReading(None, ()), GPU)) == []


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
