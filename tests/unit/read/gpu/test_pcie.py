"""The PCIe link, what it should do, how GPUs reach each other, and bytes from a source that can count them."""

import dataclasses
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import pynvml
import pytest
from jsonschema import Draft202012Validator
from tests.nvml_bench import Bench, BenchMaker, fields_say, says, shown
from tests.unit.read.baseline.test_host_facts import FULL

from gpu_triage.documents import Place, read_value
from gpu_triage.documents.pcie_values import MOST_GENERATION, TRANSFER_RATES, WIDTHS
from gpu_triage.driver.kernel.pci_bus import parse_link_speed, parse_link_width
from gpu_triage.errors import DocumentError
from gpu_triage.options.config import Config
from gpu_triage.options.option_table import all_options
from gpu_triage.read.baseline.host_facts import LinkFacts, decode, encode
from gpu_triage.read.gpu import topology
from gpu_triage.read.gpu.pcie import (
    RECEIVE,
    TRANSMIT,
    ExpectedLinkReader,
    PcieReader,
    PcieReading,
    PcieTraffic,
    read_pcie_limits,
    read_pcie_throughput,
)
from gpu_triage.read.gpu.topology import PeerReading, TopologyReading, read_topology
from gpu_triage.read.metrics.contract import GpuLabels
from gpu_triage_simulator import effects
from gpu_triage_simulator.model import Pcie
from gpu_triage_simulator.scenario import Slot

SLOT = {"bus_id": "0000:65:00.0", "node": 0}
LINKS = [*((generation, 16) for generation in TRANSFER_RATES), *((4, width) for width in WIDTHS)]
NO_LINKS = [(0, 16), (MOST_GENERATION + 1, 16), (4, 3), (4, 64)]


def _schema(repository: Path) -> Draft202012Validator:
    return Draft202012Validator(json.loads((repository / "docs" / "baseline.schema.json").read_text(encoding="utf-8")))


def _baseline(generation: int, width: int) -> str:
    link = LinkFacts(generation, width)
    return encode(replace(FULL, gpus=tuple(replace(gpu, pcie=link) for gpu in FULL.gpus)))


def _simulated(generation: int, width: int) -> None:
    link: dict[str, Any] = {"generation": generation, "width": width}
    for kind, table in ((Slot, SLOT | link), (effects.Link, link), (effects.SlotChange, link), (Pcie, link)):
        read_value(kind, table, Place("scenario.toml"))


def _options(generation: int, width: int) -> None:
    values = {"expect.pcie-generation": generation, "expect.pcie-width": width}
    for option in all_options(()):
        if option.key in values:
            option.type.convert(str(values[option.key]), option, None)


@pytest.mark.parametrize(("generation", "width"), LINKS)
def test_every_link_is_read_everywhere(generation: int, width: int, bench: BenchMaker, repository: Path) -> None:
    nvml = bench()
    nvml.answer("nvmlDeviceGetCurrPcieLinkGeneration", says(generation))
    nvml.answer("nvmlDeviceGetCurrPcieLinkWidth", says(width))
    reading = PcieReader(15.0, 60.0).read(nvml.round())
    assert (reading.generation, reading.width) == (generation, width)
    assert parse_link_speed(f"{TRANSFER_RATES[generation]} GT/s PCIe") == generation
    assert parse_link_width(str(width)) == width
    assert decode(_baseline(generation, width).encode(), "b.json").gpus[0].pcie == LinkFacts(generation, width)
    _schema(repository).validate(json.loads(_baseline(generation, width)))
    _simulated(generation, width)
    _options(generation, width)


@pytest.mark.parametrize(("generation", "width"), NO_LINKS)
def test_no_other_link_is_read_anywhere(generation: int, width: int, bench: BenchMaker, repository: Path) -> None:
    nvml = bench()
    nvml.answer("nvmlDeviceGetCurrPcieLinkGeneration", says(generation))
    nvml.answer("nvmlDeviceGetCurrPcieLinkWidth", says(width))
    reading = PcieReader(15.0, 60.0).read(nvml.round())
    assert None in (reading.generation, reading.width)
    with pytest.raises(DocumentError):
        decode(_baseline(generation, width).encode(), "b.json")
    assert not _schema(repository).is_valid(json.loads(_baseline(generation, width)))
    with pytest.raises(DocumentError):
        _simulated(generation, width)
    with pytest.raises(click.UsageError, match="write"):
        _options(generation, width)


def test_the_chart_takes_the_same_values(repository: Path) -> None:
    schema = (repository / "helm/gpu-triage-exporter/values.schema.json").read_text(encoding="utf-8")
    expected = json.loads(schema)["properties"]["expected"]["properties"]
    assert expected["pcieGeneration"]["maximum"] == MOST_GENERATION
    assert expected["pcieWidth"]["enum"] == [*WIDTHS, None]


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


def test_a_declared_expectation_beats_the_derived_one(bench: BenchMaker) -> None:
    nvml = bench("dual-a10")
    assert expected(nvml, Config(expect_pcie_generation=3)) == (3, 16)
    assert expected(nvml, Config(expect_pcie_width=8)) == (4, 8)


def test_without_sysfs_the_driver_alone_says_what_to_expect(bench: BenchMaker, tmp_path: Path) -> None:
    nvml = bench("dual-a10")
    nvml.machine = dataclasses.replace(nvml.machine, sysfs=tmp_path)
    reading = read_pcie_limits(nvml.round(), virtual=False)
    assert (reading.slot_generation, reading.device_width) == (None, None)
    assert expected(nvml) == (4, 16)


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
    nvml.clock.advance(5)
    assert before is not None
    after = traffic.read(nvml.round()).get(RECEIVE)
    assert after == pytest.approx(before + 5 * TRUE_BYTES_PER_SECOND, rel=0.01)


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
