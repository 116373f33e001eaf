"""NVLinks, the fabric that GPUs join over them, and what the driver asks for when one of them fails."""

from dataclasses import replace
from pathlib import Path

import pynvml
import pytest
from tests.mig_layouts import seven
from tests.nvml_bench import BenchMaker, fills
from tests.rig import only, pair, pair_with, rig

from gpu_triage.read.gpu.fabric import FABRIC_FAULTS, FabricReading, read_fabric
from gpu_triage.read.gpu.nvlink import (
    LINK_COUNT_FIELD,
    NVLINK_QUALITY,
    LinkReading,
    NvlinkQualityReader,
    NvlinkReader,
    NvlinkReading,
    bit_error_ratio,
    render,
)
from gpu_triage.read.metrics.contract import GpuLabels
from gpu_triage_simulator import Scenario, load_scenario
from gpu_triage_simulator.scenario import Driver
from gpu_triage_simulator.scenario_file import SCENARIOS

pytestmark = pytest.mark.slow
LEAN = only("nvlink", "mig", "memory_repair", "activity", "identity")

GPU = GpuLabels("0", "GPU-1")


def down(links: list[int], at: str, until: str = "", state: int = 0) -> str:
    end = f'until = "{until}"\n' if until else ""
    return f'at = "{at}"\n{end}gpu = 0\neffect = {{ kind = "nvlink_down", links = {links}, state = {state} }}'


def card_with_links_connected(tmp_path: Path, connected: int, *events: str) -> Scenario:
    """The host with one A100, whose twelve links lead somewhere up to this number."""
    text = (SCENARIOS / "a100-power-capped.toml").read_text()
    model = 'model = "a100-sxm4-40gb"\n'
    path = tmp_path / "card.toml"
    path.write_text(
        text.replace(model, f"{model}nvlinks_connected = {connected}\n")
        + "".join(f"\n[[event]]\n{event}\n" for event in events)
    )
    return load_scenario(path)


def test_what_a_link_does_not_tell_has_no_sample() -> None:
    link = LinkReading(is_up=None, errors={}, transmit_bytes=None, receive_bytes=None)
    samples = [s.spec.name for s in render(NvlinkReading({0: link}, {}, None, None), GPU)]
    assert samples == ["gpu_nvlink_links"]
    assert list(render(NvlinkReading({}, {}, None, None), GPU)) == []


def test_more_fields_than_one_call_takes_are_asked_for_in_several(bench: BenchMaker) -> None:
    fields = [(field, link) for field in (138, 139, 161, 162, 163, 164, 165) for link in range(18)]
    assert len([*fields, 74, 82, 94]) > 128
    rounds = bench(pair("h100-8"))
    inquiry = rounds.at(1).inquiry
    assert set(inquiry.fields([*fields, 74, 82, 94])) == {*fields, 74, 82, 94}
    assert inquiry.answered == 2


@pytest.mark.parametrize(("state", "is_up"), [(0, False), (2, True), (3, False)])
def test_a_link_is_up_while_active_or_asleep(bench: BenchMaker, tmp_path: Path, state: int, is_up: bool) -> None:  # noqa: FBT001 - a table
    rounds = bench(pair_with(tmp_path, "h100-8", down([3], "10s", state=state)))
    reader = NvlinkReader()
    assert reader.read(rounds.at(5)).links[3].is_up is True
    links = reader.read(rounds.at(15)).links
    assert (links[3].is_up, links[4].is_up) == (is_up, True)


def test_a_link_that_goes_down_stays_in_sight_and_counts_on_when_it_is_back(bench: BenchMaker, tmp_path: Path) -> None:
    rounds = bench(pair_with(tmp_path, "h100-8", down([3], "10s", "30s")))
    reader = NvlinkReader()
    states, sent = [], []
    for second in (5, 15, 25, 35):
        link = reader.read(rounds.at(second)).links[3]
        states.append(link.is_up)
        sent.append(link.transmit_bytes or 0)
    assert states == [True, False, False, True]
    assert sent[0] < sent[1] == sent[2] < sent[3]


@pytest.mark.parametrize("powered_seconds", [0, 3600])
def test_a_link_that_broke_before_the_start_shows_if_used(
    bench: BenchMaker, tmp_path: Path, powered_seconds: int
) -> None:
    scenario = pair_with(tmp_path, "h100-8", down([3], "0s"))
    gpus = tuple(replace(gpu, powered_seconds=powered_seconds) for gpu in scenario.gpus)
    rounds = bench(replace(scenario, gpus=gpus))
    link = NvlinkReader().read(rounds.at(0)).links[3]
    assert (link.is_up, link.errors) == (False, {"replay": 0, "recovery": 0, "crc": 0})
    assert ((link.transmit_bytes or 0) > 0) == (powered_seconds > 0)


def test_in_a_fabric_links_that_were_never_up_are_connected(bench: BenchMaker, tmp_path: Path) -> None:
    unnamed = 'effect = { kind = "error", function = "nvmlDeviceGetNvLinkRemotePciInfo_v2", code = "NOT_SUPPORTED" }'
    scenario = pair_with(tmp_path, "h100-8", down(list(range(18)), "0s"), f"at = 0\n{unnamed}")
    gpus = tuple(replace(gpu, powered_seconds=0) for gpu in scenario.gpus)
    links = NvlinkReader().read(bench(replace(scenario, gpus=gpus)).at(0)).links
    assert [link.is_up for link in links.values()] == [False] * 18


@pytest.mark.parametrize("connected", [0, 8])
def test_links_that_lead_nowhere_are_no_fault(tmp_path: Path, connected: int) -> None:
    # As a PCIe card without a bridge, and with one that uses some of its links.
    with rig(card_with_links_connected(tmp_path, connected), LEAN) as running:
        running.run(70)
        assert [value for _, value in running.series("gpu_nvlink_links")] == [connected] * bool(connected)
        assert [value for _, value in running.series("gpu_nvlink_links_up")] == [connected] * bool(connected)
        assert len(running.series("gpu_nvlink_transmit_bytes_total")) == bool(connected)
        assert len(running.series("gpu_nvlink_errors_total")) == 3 * bool(connected)
        assert running.series("gpu_exporter_errors_total") == []
        assert running.value("gpu_exporter_collector_success", collector="nvlink") == 1


@pytest.mark.parametrize("code", ["UNKNOWN", "NOT_FOUND", "NOT_SUPPORTED", "INVALID_ARGUMENT", "NO_PERMISSION"])
def test_however_the_driver_says_that_nothing_is_there(bench: BenchMaker, tmp_path: Path, code: str) -> None:
    name = "nvmlDeviceGetNvLinkRemotePciInfo_v2"
    refusal = f'at = 0\neffect = {{ kind = "error", function = "{name}", code = "{code}" }}'
    rounds = bench(card_with_links_connected(tmp_path, 8, refusal))
    round_ = rounds.at(5)
    assert list(NvlinkReader().read(round_).links) == list(range(8))
    assert round_.inquiry.failures == []


@pytest.mark.parametrize(
    ("generation", "errors"),
    [
        (4, {"replay": 10, "recovery": 2, "crc": 100}),
        # Its counters take the place of those it lacks.
        (5, {"recovery": 2, "recovery_failed": 0}),
    ],
)
def test_errors_count_by_link(bench: BenchMaker, tmp_path: Path, generation: int, errors: dict[str, float]) -> None:
    rates = "replay_per_hour = 3600, recovery_per_hour = 720, crc_per_hour = 36000"
    event = f'at = "10s"\ngpu = 0\neffect = {{ kind = "nvlink_errors", links = [7], {rates} }}'
    scenario = pair_with(tmp_path, "h100-8", event)
    gpus = tuple(replace(gpu, model=replace(gpu.model, nvlink_version=generation)) for gpu in scenario.gpus)
    rounds = bench(replace(scenario, gpus=gpus))
    round_ = rounds.at(20)
    links = NvlinkReader().read(round_).links
    assert links[7].errors == errors
    assert links[8].errors == dict.fromkeys(errors, 0)
    assert (links[7].transmit_bytes or 0) > 0
    assert round_.inquiry.failures == []


def test_a_counter_keeps_its_source_and_a_total_does_not_leap_while_a_link_is_silent(bench: BenchMaker) -> None:
    rounds = bench(pair("h100-8"))
    reader = NvlinkReader()
    totals, counts = [], []
    for second in (5, 10, 15):
        round_ = rounds.at(second)
        if second == 10:
            # The driver has another counter of the same, with other values.
            round_.inquiry.device.unsupported.add(("field", (138, 0)))
        reading = reader.read(round_)
        totals.append(reading.transmit_bytes or 0)
        counts.append(reading.links[0].transmit_bytes)
        round_.inquiry.device.unsupported.clear()
    silent, back = totals[1] - totals[0], totals[2] - totals[1]
    assert 0 < silent < back < 2 * silent
    assert counts[1] is None
    assert (counts[2] or 0) > (counts[0] or 0)


def test_links_of_a_gpu_that_mig_splits_are_unknown_and_return_with_the_whole_gpu(tmp_path: Path) -> None:
    with rig(pair_with(tmp_path, "h100-8", seven("20s", until="100s")), LEAN) as running:
        running.run_to(19)
        assert running.value("gpu_nvlink_links_up", gpu="0") == 18
        sent = running.value("gpu_nvlink_transmit_bytes_total", gpu="0") or 0
        running.run_to(70)
        for name in ("gpu_nvlink_links", "gpu_nvlink_links_up", "gpu_nvlink_up", "gpu_nvlink_transmit_bytes_total"):
            assert running.series(name, gpu="0") == []
        assert running.value("gpu_nvlink_links_up", gpu="1") == 18
        assert running.series("gpu_remapped_rows", gpu="0") == []
        assert running.value("gpu_row_remap_banks", gpu="0", availability="max") == 2560
        assert running.series("gpu_exporter_errors_total") == []
        running.run_to(170)
        assert running.value("gpu_nvlink_links_up", gpu="0") == 18
        assert (running.value("gpu_nvlink_transmit_bytes_total", gpu="0") or 0) > sent
        assert len(running.series("gpu_remapped_rows", gpu="0")) == 2


def test_a_driver_that_says_nothing_of_links_has_not_lost_them(bench: BenchMaker) -> None:
    rounds = bench(pair("h100-8"))
    reader = NvlinkReader()
    assert reader.read(rounds.at(5)).reported
    round_ = rounds.at(10)
    round_.inquiry.device.unsupported.add(("field", LINK_COUNT_FIELD))
    assert not reader.read(round_).reported


def test_line_rates_are_summed_over_the_links_to_each_far_end(bench: BenchMaker, tmp_path: Path) -> None:
    # "Link 0: 26.562 GB/s" of nvidia-smi nvlink -s on an H100: 18 links, dealt to four switches.
    rounds = bench(pair_with(tmp_path, "h100-8", down([3], "0s")))
    round_ = rounds.at(5)
    bandwidth = NvlinkReader().read(round_).bandwidth
    assert [bandwidth[f"0000:c{switch}:00.0"] / 26.562e9 for switch in (3, 4, 5, 6)] == pytest.approx([5, 5, 4, 3])
    assert round_.inquiry.failures == []


@pytest.mark.parametrize(
    ("slow", "version", "ratios"),
    [
        ([3], None, {"3": 0.5}),
        # All are slow: the version tells (NVML_NVLINK_VERSION_4_0 is 6), and the speed that the board has if not.
        (list(range(18)), None, {str(link): 0.5 for link in range(18)}),
        (list(range(18)), pynvml.NVML_ERROR_NOT_SUPPORTED, {}),
    ],
)
def test_a_links_speed_is_a_share_of_that_of_its_version_or_of_the_fastest(
    bench: BenchMaker, tmp_path: Path, slow: list[int], version: int | None, ratios: dict[str, float]
) -> None:
    event = f'at = 0\ngpu = 0\neffect = {{ kind = "nvlink_slow", links = {slow} }}'
    rounds, reader = bench(pair_with(tmp_path, "h100-8", event)), NvlinkReader()
    if version is not None:
        rounds.answer("nvmlDeviceGetNvLinkVersion", version)
    found = [reader.read(rounds.at(at)).speed_ratios for at in (5, 10)]
    assert [{link: ratio for link, ratio in each.items() if ratio < 1} for each in found] == [ratios] * 2
    assert len(found[0]) == 18
    assert rounds.calls("nvmlDeviceGetNvLinkVersion") == 1


def test_a_driver_without_the_speed_of_each_link_tells_the_common_one(bench: BenchMaker) -> None:
    # Driver 470 on V100 without switches: six links, two to each of the three others.
    rounds = bench(load_scenario("v100-old-driver"))
    bandwidth = NvlinkReader().read(rounds.at(5)).bandwidth
    others = ("0000:1c:00.0", "0000:88:00.0", "0000:8a:00.0")
    assert bandwidth == pytest.approx(dict.fromkeys(others, 2 * 25.781e9))


def test_an_unnamed_far_end_and_no_speed_stay_apart(bench: BenchMaker, tmp_path: Path) -> None:
    name = "nvmlDeviceGetNvLinkRemotePciInfo_v2"
    refusal = f'at = 0\neffect = {{ kind = "error", function = "{name}", code = "NOT_SUPPORTED" }}'
    rounds = bench(pair_with(tmp_path, "h100-8", refusal))
    assert NvlinkReader().read(rounds.at(5)).bandwidth == pytest.approx({"": 18 * 26.562e9})
    rounds = bench(pair("h100-8"))
    round_ = rounds.at(5)
    round_.inquiry.device.unsupported.update(("field", (164, link)) for link in range(18))
    round_.inquiry.device.unsupported.add(("field", 90))
    reading = NvlinkReader().read(round_)
    assert reading.bandwidth == {}
    assert len(reading.links) == 18


@pytest.mark.parametrize(("raw", "rate"), [(0xFFF, 0.0), (0x000, 0.0), (0x10C, 1e-12), (0x30B, 3e-11), (0xA0D, 1e-12)])
def test_a_rate_is_a_mantissa_and_an_exponent(raw: int, rate: float) -> None:
    """As in nvml.h and NvmlBerParser of DCGM's DcgmUtilities.cpp; 15 and 255 are 0."""
    assert bit_error_ratio(raw) == pytest.approx(rate)


def test_links_of_an_earlier_generation_tell_nothing_and_are_asked_little(bench: BenchMaker) -> None:
    nvml, reader = bench("h100-8"), NvlinkQualityReader()
    for _ in range(3):
        round_ = nvml.round()
        assert list(NVLINK_QUALITY.render(reader.read(round_), GPU)) == []
        assert round_.inquiry.failures == []
    assert nvml.calls("nvmlDeviceGetFieldValues") <= 4


def test_a_driver_without_the_summary_still_tells_the_state(bench: BenchMaker) -> None:
    older = replace(load_scenario("h100-8"), driver=Driver("550.54.14", "12.4"))
    rounds = bench(older)
    round_ = rounds.at(1)
    for _ in range(2):
        assert read_fabric(round_) == FabricReading(state=3, health=None)
    assert round_.inquiry.failures == []


def joined(bench: BenchMaker, **members: int) -> FabricReading:
    """What is read of a driver that fills the struct like this."""
    nvml = bench("h100-8")
    nvml.answer("nvmlDeviceGetGpuFabricInfoV", fills(**members))
    return read_fabric(nvml.round())


REFUSED = pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES


@pytest.mark.parametrize(
    ("members", "reading"),
    [
        ({"state": 0}, FabricReading(None, None)),
        ({"state": 2}, FabricReading(2, None)),
        *(({"state": 3, "healthSummary": health}, FabricReading(3, health)) for health in (1, 2, 3)),
        # With an error, a GPU that has joined is unhealthy; before, the error means nothing.
        *(({"state": 3, "status": REFUSED, "healthSummary": health}, FabricReading(3, 2)) for health in (0, 1, 3)),
        ({"state": 2, "status": REFUSED}, FabricReading(2, None)),
        # The state is a byte, whatever stands behind it.
        ({"state": 0x7F3A5D03, "healthSummary": 1}, FabricReading(3, 1)),
    ],
)
def test_state_and_health_of_a_fabric(bench: BenchMaker, members: dict[str, int], reading: FabricReading) -> None:
    assert joined(bench, **members) == reading


@pytest.mark.parametrize(
    ("mask", "faults", "configuration"),
    [
        (0, {}, None),
        (0b01_10_0001_10_10_10_10, dict.fromkeys(FABRIC_FAULTS, False), 1),
        (0b10_10_0101_01_10_01_01, dict.fromkeys(FABRIC_FAULTS, True) | {"route_unhealthy": False}, 5),
        (0b01, {"degraded_bandwidth": True}, None),
        (0xFFFFFFFF, {}, None),
    ],
)
def test_the_mask_has_faults(bench: BenchMaker, mask: int, faults: dict[str, bool], configuration: int | None) -> None:
    found = joined(bench, state=3, status=0, healthSummary=1, healthMask=mask)
    assert (found.faults, found.configuration) == (faults, configuration)
