"""The PCIe link, what it should do, its errors, how GPUs reach each other and adapters, and bytes that were counted."""

import json
from dataclasses import replace
from pathlib import Path

import pynvml
import pytest
from tests.host_tree import HostTree
from tests.nvml_bench import Bench, BenchMaker, fields_say, says, shown

from gpu_triage.documents.pcie_values import MOST_GENERATION, WIDTHS
from gpu_triage.driver.nvml.inquiry import Inquiry
from gpu_triage.driver.nvml.session import Device, DriverVersions
from gpu_triage.errors import HostReadFailed
from gpu_triage.machine import Machine
from gpu_triage.options.config import Config
from gpu_triage.read.gpu import topology
from gpu_triage.read.gpu.pcie import (
    RECEIVE,
    TRANSMIT,
    ExpectedLinkReader,
    PcieAerReader,
    PcieAerReading,
    PcieReader,
    PcieReading,
    PcieTraffic,
    parse_aer_total,
    read_pcie_limits,
    read_pcie_throughput,
)
from gpu_triage.read.gpu.topology import (
    PciPlace,
    PeerReading,
    TopologyReading,
    level_between,
    pci_chain,
    read_nic_topology,
    read_topology,
)
from gpu_triage.read.metrics.contract import GpuLabels, GpuRound


def test_chart_and_schema_of_the_baseline_take_the_links_that_are_read(repository: Path) -> None:
    chart, baseline = (
        json.loads((repository / path).read_text(encoding="utf-8"))
        for path in ("helm/gpu-triage-exporter/values.schema.json", "docs/baseline.schema.json")
    )
    expected = chart["properties"]["expected"]["properties"]
    limits = [
        (each["minimum"], each["maximum"]) for each in (expected["pcieGeneration"], baseline["$defs"]["generation"])
    ]
    assert limits == [(1, MOST_GENERATION)] * 2
    assert expected["pcieWidth"]["enum"] == [*baseline["$defs"]["lanes"]["enum"], None] == [*WIDTHS, None]


def expected(nvml: Bench, config: Config | None = None, gpu: int = 0) -> tuple[int | None, int | None]:
    reading = ExpectedLinkReader(config or Config()).read(nvml.round(gpu))
    return reading.generation, reading.width


def test_lanes_are_declared_where_there_is_a_link(bench: BenchMaker) -> None:
    nvml = bench("dual-a10")
    declared, derived = (ExpectedLinkReader(Config(expect_pcie_width=width)) for width in (8, None))
    assert [each.read(nvml.round()).width_declared for each in (declared, derived)] == [True, None]
    nvml.answer("nvmlDeviceGetBusType", says(3))
    assert declared.read(nvml.round()).width_declared is None


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
def test_links_are_expected_to_do_what_all_can(
    bench: BenchMaker, card: int, slot: int, system: int, least: int
) -> None:
    nvml = bench()
    speeds = {3: "8.0", 4: "16.0", 5: "32.0"}
    port = nvml.machine.sysfs / "bus" / "pci" / "devices" / "0000:64:00.0"
    (port / "max_link_speed").write_text(f"{speeds[slot]} GT/s PCIe\n")
    nvml.answer("nvmlDeviceGetGpuMaxPcieLinkGeneration", says(card))
    nvml.answer("nvmlDeviceGetMaxPcieLinkGeneration", says(system))
    reading = read_pcie_limits(nvml.round(), virtual=False)
    assert (reading.device_generation, reading.slot_generation, reading.system_generation) == (card, slot, system)
    assert expected(nvml) == (least, 16)
    (port / "max_link_width").write_text("8\n")
    assert expected(nvml) == (least, 8)
    nvml.answer("nvmlDeviceGetMaxPcieLinkWidth", says(4))
    assert expected(nvml) == (least, 4)


def test_the_cards_generation_is_the_kernels_where_the_driver_does_not_tell(bench: BenchMaker) -> None:
    nvml = bench("dual-a10")
    nvml.answer("nvmlDeviceGetGpuMaxPcieLinkGeneration", pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    assert read_pcie_limits(nvml.round(), virtual=False).device_generation == 4


def test_without_sysfs_the_driver_alone_says_what_to_expect_and_a_declaration_beats_either(
    bench: BenchMaker, tmp_path: Path
) -> None:
    nvml = bench("dual-a10")
    assert expected(nvml, Config(expect_pcie_generation=3)) == (3, 16)
    assert expected(nvml, Config(expect_pcie_width=8)) == (4, 8)
    nvml.machine = replace(nvml.machine, sysfs=tmp_path)
    reading = read_pcie_limits(nvml.round(), virtual=False)
    assert (reading.slot_generation, reading.device_width) == (None, None)
    assert expected(nvml) == (4, 16)


def test_whether_the_host_is_a_virtual_machine_is_asked_until_it_is_known(bench: BenchMaker) -> None:
    nvml, reader = bench("dual-a10"), ExpectedLinkReader(Config())
    nvml.answer("nvmlDeviceGetVirtualizationMode", pynvml.NVML_ERROR_NOT_SUPPORTED)
    (nvml.machine.sysfs / "bus" / "pci" / "devices" / "0000:64:00.0" / "max_link_width").unlink()
    cpuinfo, hidden = nvml.machine.procfs / "cpuinfo", []
    for text in ("", "flags : fpu hypervisor\n", ""):
        cpuinfo.write_text(text)
        hidden.append(reader.read(nvml.round()).limits.slot_hidden)
    assert hidden == [False, True, True]


def test_one_pair_without_p2p_does_not_silence_the_others(bench: BenchMaker) -> None:
    nvml, asked = bench("h100-8"), []

    def status(_here: object, there: object, _capability: int, out: object) -> int:
        asked.append(there)
        if len(asked) <= 5:
            return int(pynvml.NVML_ERROR_NOT_SUPPORTED)
        out._obj.value = 0  # type: ignore[attr-defined]  # a ctypes reference
        return 0

    nvml.answer("nvmlDeviceGetP2PStatus", status)
    for _ in range(2):
        assert [len(peer.p2p) for peer in read_topology(nvml.round()).peers] == [0, *[5] * 6]
    assert len(asked) == 65


def test_the_distance_of_a_pair_is_told_by_the_gpu_of_the_lower_index() -> None:
    reading = TopologyReading(1, (PeerReading("0", "GPU-z", {}, "pxb"),))
    assert "gpu_topology_info" not in "".join(shown(topology.render(reading, GpuLabels("10", "GPU-a"))))


TRUE_BYTES_PER_SECOND = 12.0e9
BUSY = f'kind = "load", utilization = 1.0, jitter = 0.0, pcie_receive_bytes_per_second = {TRUE_BYTES_PER_SECOND}'
LOAD = f"at = 0\neffect = {{ {BUSY} }}"
PROVEN = 1 << 40


def reader() -> PcieTraffic:
    return PcieTraffic(max_gap_seconds=15.0, retry_seconds=60.0)


def received(nvml: Bench, traffic: PcieTraffic, rounds: int, seconds: float = 5.0) -> list[float | None]:
    readings = []
    for _ in range(rounds):
        readings.append(traffic.read(nvml.round()).get(RECEIVE))
        nvml.clock.advance(seconds)
    return readings


def counted(nvml: Bench, traffic: PcieTraffic, *raws: int) -> list[float | None]:
    readings = []
    for raw in raws:
        nvml.answer("nvmlDeviceGetFieldValues", fields_say({197: (0, "ullVal", raw), 198: (0, "ullVal", raw)}))
        readings.append(traffic.read(nvml.round()).get(TRANSMIT))
        nvml.clock.advance(5)
    return readings


def test_twelve_gigabytes_per_second_are_twelve_where_there_is_gpm(bench: BenchMaker) -> None:
    nvml = bench("h100-8", LOAD)
    first, *later = received(nvml, reader(), 13)
    assert first is None
    assert None not in later
    assert later[-1] == pytest.approx(60 * TRUE_BYTES_PER_SECOND, rel=0.01)


def test_a_counter_of_32_bits_is_not_published(bench: BenchMaker) -> None:
    nvml = bench("idle-downshift", LOAD)
    nvml.clock.advance(60)
    assert received(nvml, reader(), 12) == [None] * 12


@pytest.mark.parametrize(
    ("raws", "readings"),
    [
        ((7, PROVEN, PROVEN + 5, PROVEN + 10**10), [None, None, 0, 10**10 - 5]),
        ((7, PROVEN, 9, PROVEN, 1 << 63, 11), [None] * 6),  # a single value proves nothing
        ((PROVEN, PROVEN, PROVEN + 100, 10, 20), [None, 0, 100, 100, 120]),  # reset
    ],
)
def test_counters_beyond_32_bits_count(bench: BenchMaker, raws: tuple[int, ...], readings: list[float | None]) -> None:
    assert counted(bench(), reader(), *raws) == readings


def test_traffic_that_no_link_carries_is_dropped(bench: BenchMaker) -> None:
    nvml, traffic = bench("h100-8", LOAD), reader()
    before = received(nvml, traffic, 3)[-1]
    original = nvml.library._base.nvmlGpmMetricsGet  # type: ignore[attr-defined]  # any function has a name

    def absurd(request: object) -> int:
        code = int(original(request))
        for metric in request._obj.metrics[:2]:  # type: ignore[attr-defined]  # a ctypes reference
            metric.value = 1e9
        return code

    nvml.answer("nvmlGpmMetricsGet", absurd)
    round_ = nvml.round()
    assert traffic.read(round_) == {}
    assert round_.inquiry.failures == ["implausible"] * 2
    nvml.restore("nvmlGpmMetricsGet")
    after = traffic.read(nvml.after(5)).get(RECEIVE)
    assert after == pytest.approx((before or 0.0) + 5 * TRUE_BYTES_PER_SECOND, rel=0.01)


def test_a_refusal_of_gpm_falls_back_to_a_counter_that_has_proved_its_width(bench: BenchMaker) -> None:
    nvml, traffic = bench("h100-8", LOAD), reader()
    by_gpm = received(nvml, traffic, 3)[-1]
    assert by_gpm is not None
    nvml.answer("nvmlGpmSampleGet", pynvml.NVML_ERROR_NO_PERMISSION)
    readings = counted(nvml, traffic, PROVEN, PROVEN, PROVEN + 1000)
    assert readings[0] is None
    assert readings[-1] is not None
    assert readings[-1] < by_gpm * 0.1  # of the other direction


def test_a_refusal_of_another_question_does_not_cost_gpm(bench: BenchMaker) -> None:
    nvml, link = bench("h100-8", LOAD), PcieReader(15.0, 60.0)
    nvml.answer("nvmlDeviceGetCurrPcieLinkWidth", pynvml.NVML_ERROR_NO_PERMISSION)
    readings = []
    for _ in range(3):
        readings.append(link.read(nvml.round()).receive_bytes)
        nvml.clock.advance(5)
    assert readings == [None, *(pytest.approx(n * 5 * TRUE_BYTES_PER_SECOND, rel=0.01) for n in (1, 2))]


BUS_ID, PORT = "0000:65:00.0", "0000:64:00.0"
PORT_PATH = f"sys/devices/pci0000:64/{PORT}"
GPU_PATH = f"{PORT_PATH}/{BUS_ID}"

CORRECTABLE = "RxErr 0\nBadTLP 3\nBadDLLP 1\nTimeout 2\nTOTAL_ERR_COR 6\n"


def aer(path: str, correctable: str = "0", nonfatal: str = "0", fatal: str = "0") -> dict[str, str]:
    return {
        f"{path}/aer_dev_correctable": f"Receiver Error 0\nTOTAL_ERR_COR {correctable}\n",
        f"{path}/aer_dev_nonfatal": f"Completion Timeout 0\nTOTAL_ERR_NONFATAL {nonfatal}\n",
        f"{path}/aer_dev_fatal": f"Undefined 0\nTOTAL_ERR_FATAL {fatal}\n",
    }


def plug_in(host: HostTree) -> None:
    """A GPU below a port, both with AER."""
    host.write(aer(PORT_PATH, "12", "1", "0") | aer(GPU_PATH, "3", "0", "0"))
    host.device(f"pci0000:64/{PORT}", "0x8086", "0x060400")
    host.device(f"pci0000:64/{PORT}/{BUS_ID}", "0x10de", "0x030200")


def round_of(host: HostTree, bus_id: str | None = BUS_ID) -> GpuRound:
    """A round of a GPU that no driver answers for."""
    round_ = host.round()
    inquiry = Inquiry(Device(0, "GPU-1", bus_id, None))
    return GpuRound(inquiry, DriverVersions(None, None, None), (), round_.machine, round_.at)


def test_both_ends_of_the_link_are_read_without_a_driver_but_not_without_sysfs(host: HostTree) -> None:
    host.sysfs.mkdir()
    with pytest.raises(HostReadFailed, match="missing"):
        PcieAerReader().read(round_of(host))
    plug_in(host)
    round_ = round_of(host)
    assert PcieAerReader().read(round_) == PcieAerReading(
        gpu={"correctable": 3, "nonfatal": 0, "fatal": 0}, port={"correctable": 12, "nonfatal": 1, "fatal": 0}
    )
    assert (round_.inquiry.failures, round_.inquiry.answered) == ([], 0)


def test_a_kernel_without_aer_and_a_guest_without_a_port_are_no_failure(host: HostTree) -> None:
    host.device(f"pci0000:00/{BUS_ID}", "0x10de", "0x030200")
    round_ = round_of(host)
    assert PcieAerReader().read(round_) == PcieAerReading({}, {})
    assert round_.inquiry.failures == []
    assert PcieAerReader().read(round_of(host, bus_id=None)) == PcieAerReading({}, {})


@pytest.mark.parametrize(
    "junk",
    ["", "\n", "TOTAL_ERR_COR\n", "TOTAL_ERR_COR many\n", "TOTAL_ERR_COR -1\n", "TOTAL_ERR_COR ٣\n", "BadTLP 3\n"],
)
def test_a_file_without_a_sum_costs_itself_and_is_counted(host: HostTree, junk: str) -> None:
    plug_in(host)
    host.write({f"{GPU_PATH}/aer_dev_correctable": junk})
    round_ = round_of(host)
    reading = PcieAerReader().read(round_)
    assert list(reading.gpu) == ["nonfatal", "fatal"]
    assert len(reading.port) == 3
    assert round_.inquiry.failures == ["malformed"]


def test_the_sum_is_read_and_single_errors_are_not_added_up() -> None:
    assert parse_aer_total(CORRECTABLE, "correctable") == 6
    assert parse_aer_total(CORRECTABLE, "fatal") is None
    assert parse_aer_total("Bad Line\n\x00\nTOTAL_ERR_FATAL x\nTOTAL_ERR_FATAL  9  \n", "fatal") == 9


@pytest.mark.parametrize(
    ("service", "counts"),
    [
        (f"{PORT}:pcie002", {"correctable": 0, "nonfatal": 1, "fatal": 0}),
        (f"{PORT}:pcie001", {"nonfatal": 1}),  # power management alone: the firmware has the errors
        ("0000:01:00.0:pcie002", {"nonfatal": 1}),  # of another root port
        ("", {"correctable": 0, "nonfatal": 1, "fatal": 0}),  # not known: no such bus to look at
    ],
)
def test_nothing_is_published_where_firmware_has_errors(host: HostTree, service: str, counts: dict[str, float]) -> None:
    """get_port_device_capability of drivers/pci/pcie/portdrv.c gives a port the service AER only if native_aer."""
    plug_in(host)
    host.write(aer(GPU_PATH, "0", "1", "0"))
    if service:
        host.write({f"sys/bus/pci_express/devices/{service}/uevent": ""})
    assert PcieAerReader().read(round_of(host)).gpu == counts


def test_who_has_the_errors_of_a_gpu_that_was_gone_at_first_is_told_once_it_is_back(host: HostTree) -> None:
    host.write({f"sys/bus/pci_express/devices/{PORT}:pcie001/uevent": ""})
    reader = PcieAerReader()
    assert reader.read(round_of(host)) == PcieAerReading({}, {})
    plug_in(host)
    assert reader.read(round_of(host)).gpu == {"correctable": 3}


def place(*chain: str, node: int | None = 0) -> PciPlace:
    return PciPlace(tuple(chain), node)


# A Gen5 server: a root port, a switch below it, and devices on the switch's ports.
GPU = place("pci0000:15", "0000:15:01.0", "0000:16:00.0", "0000:17:00.0", "0000:18:00.0")


@pytest.mark.parametrize(
    ("nic", "level"),
    [
        (place("pci0000:15", "0000:15:01.0", "0000:16:00.0", "0000:19:00.0", "0000:1a:00.0"), "pix"),
        (place(*GPU.chain[:4], "0000:18:00.1"), "pix"),
        # A DPU brings a switch of its own.
        (place(*GPU.chain[:3], "0000:19:00.0", "0000:1a:00.0", "0000:1b:00.0", "0000:1c:00.0"), "pxb"),
        (place("pci0000:15", "0000:15:03.0", "0000:20:00.0"), "phb"),
        (place("pci0000:15", "0000:15:00.0"), "phb"),
        (place("pci0000:26", "0000:26:01.0", "0000:27:00.0"), "node"),
        (place("pci0001:15", "0001:15:01.0", "0001:16:00.0"), "node"),
        (place("pci0000:97", "0000:97:01.0", "0000:98:00.0", node=1), "sys"),
        (place("pci0000:97", "0000:97:01.0", "0000:98:00.0", node=None), None),
    ],
)
def test_levels_are_those_of_nvidia_smi(nic: PciPlace, level: str | None) -> None:
    assert level_between(GPU, nic, one_node=False) == level
    assert level_between(nic, GPU, one_node=False) == level


def test_a_host_that_lists_one_node_has_more_only_if_its_devices_name_two() -> None:
    here, there = place("pci0000:00", node=None), place("pci0000:80", node=None)
    assert level_between(here, there, one_node=True) == "node"
    assert level_between(place("pci0000:00"), place("pci0000:80", node=1), one_node=True) == "sys"


@pytest.mark.parametrize(
    ("path", "chain"),
    [
        ("/sys/devices/pci0000:15/0000:15:01.0/0000:18:00.0", ("pci0000:15", "0000:15:01.0", "0000:18:00.0")),
        ("/sys/devices/pci0000:00/0000:00:05.0/virtio1", ("pci0000:00", "0000:00:05.0")),
        ("/sys/devices/platform/NVDA0001:00/pci0009:00/0009:00:00.0", ("pci0009:00", "0009:00:00.0")),
        ("/sys/devices/LNXSYSTM:00/VMBUS:00/pcic0de:00/c0de:00:00.0", ("pcic0de:00", "c0de:00:00.0")),
        ("/sys/devices/pci0000:00/0000:00:14.0/usb1/1-11/1-11:1.0", ()),
        ("/sys/devices/LNXSYSTM:00/VMBUS:00/f8615163-df3e-46c5-913f-f2d2f965ed0e", ()),
        ("/sys/devices/pci0000:00", ()),
        ("/", ()),
    ],
)
def test_chains_begin_at_the_host_bridge(path: str, chain: tuple[str, ...]) -> None:
    assert pci_chain(path) == chain


def with_sysfs(machine: Machine, bus_id: str, nic: str, **links: str) -> None:
    for name, target in links.items():
        link = machine.sysfs / "class" / "net" / nic / name
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(machine.sysfs / "bus" / "pci" / "devices" / bus_id if target == "here" else target)


def test_what_is_not_on_the_bus_or_is_virtual_has_no_level(bench: BenchMaker) -> None:
    gpu = bench("a100-power-capped").round()
    with_sysfs(gpu.machine, "0000:83:00.0", "dangling", device="/nowhere")
    with_sysfs(gpu.machine, "0000:83:00.0", "looped", device="device")
    (gpu.machine.sysfs / "class" / "net" / "lo").mkdir()
    virtual = gpu.machine.sysfs / "devices" / "pci0000:80" / "0000:83:00.1"
    virtual.mkdir()
    (virtual / "physfn").symlink_to("../0000:83:00.0")
    with_sysfs(gpu.machine, "0000:83:00.1", "eth0v0", device=str(virtual))
    assert read_nic_topology(gpu).levels == {"eth0": "phb"}
    assert gpu.inquiry.failures == []


@pytest.mark.parametrize(("node", "level"), [(0, "node"), (1, "sys"), (-1, None)])
def test_behind_another_host_bridge_the_node_decides(bench: BenchMaker, node: int, level: str | None) -> None:
    gpu = bench("dual-a10").round()
    nic = gpu.machine.sysfs / "devices" / "pci0000:c0" / "0000:c1:00.0"
    nic.mkdir(parents=True)
    (nic / "numa_node").write_text(f"{node}\n")
    (gpu.machine.sysfs / "bus" / "pci" / "devices" / nic.name).symlink_to(nic)
    with_sysfs(gpu.machine, nic.name, "eth9", device=str(nic))
    assert read_nic_topology(gpu).levels.get("eth9") == level


def test_adapters_that_cannot_be_listed_and_a_sysfs_that_is_not_mounted_are_failures(
    bench: BenchMaker, tmp_path: Path
) -> None:
    gpu = bench("rtx-4070-ti-super").round()
    with pytest.raises(HostReadFailed, match="missing"):
        read_nic_topology(replace(gpu, machine=replace(gpu.machine, sysfs=tmp_path)))
    infiniband = gpu.machine.sysfs / "class" / "infiniband"
    infiniband.rmdir()
    infiniband.symlink_to("infiniband")
    with pytest.raises(HostReadFailed, match="io_error"):
        read_nic_topology(gpu)
