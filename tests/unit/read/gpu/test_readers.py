"""What the readers make of the driver's answers, call by call.

Field ids of newer GPUs and modules are from nvml.h (CUDA 13.3) and nvidia-ml-py 13.615: NVML_FI_DEV_C2C_LINK_*
(170-172, 231-233), bank remapper (303-307). Memories are from nvmlMemoryLocation_t: DRAM 2, SRAM 7.
"""

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pynvml
import pytest
from tests.fed import GPU, MINUTE, Fed, loaded
from tests.nvml_bench import FIELDS, BenchMaker, fields_say, fills, says

from gpu_triage.driver.nvml.session import DriverVersions
from gpu_triage.read.gpu.activity import ActivityReader, read_media
from gpu_triage.read.gpu.device_memory import read_device_memory
from gpu_triage.read.gpu.ecc import EccReader, read_memory_repair
from gpu_triage.read.gpu.identity import IdentityReading, read_identity, render
from gpu_triage.read.gpu.modes import GPU_RECOVERY_ACTION, read_modes, read_recovery
from gpu_triage.read.gpu.nvlink import GPU_C2C_LINKS, GPU_C2C_LINKS_UP, C2cReader, C2cReading
from gpu_triage.read.gpu.pcie import PcieReader, read_pcie_throughput
from gpu_triage.read.gpu.power import PowerReader, PowerReading, profiles_in, read_clocks, read_limits, read_thermal
from gpu_triage.read.gpu.topology import read_topology
from gpu_triage.read.metrics.contract import GpuLabels, GpuRound
from gpu_triage.read.metrics.metric import Sample

UNSUPPORTED = pynvml.NVML_ERROR_NOT_SUPPORTED
MISSING = pynvml.NVML_ERROR_FUNCTION_NOT_FOUND
NOT_AVAILABLE = 0xFFFFFFFF
IMPLAUSIBLE = "implausible"


def words(*numbers: int) -> Any:
    """A function that succeeds and writes these over the first words behind its last pointer."""

    def call(*arguments: Any) -> int:
        arguments[-1]._obj[: len(numbers)] = numbers
        return 0

    return call


def pcie(gpu: GpuRound) -> Any:
    return PcieReader(15.0, 60.0).read(gpu)


ANSWERS: Mapping[str, tuple[Callable[[GpuRound], Any], list[tuple[Any, ...]]]] = {
    "JpgUtilization": (
        lambda gpu: read_media(gpu).jpeg_utilization_ratio,
        [(says(40, 167_000), 0.4), (says(101, 167_000), None, IMPLAUSIBLE), (UNSUPPORTED, None)],
    ),
    "EncoderStats": (
        lambda gpu: read_media(gpu).encoder_sessions,
        [(says(3, 60, 1500), 3), (says(4_000_000_000, 0, 0), None, IMPLAUSIBLE), (UNSUPPORTED, None)],
    ),
    "PerformanceState": (
        lambda gpu: ActivityReader(3.0).read(gpu).performance_state,
        [(says(15), 15), (says(16), None), (says(32), None)],
    ),
    "UtilizationRates": (
        lambda gpu: ActivityReader(3.0).read(gpu).sm_utilization_ratio,
        [(fills(gpu=100, memory=0), 1.0), (fills(gpu=101, memory=0), None, IMPLAUSIBLE)],
    ),
    "MinorNumber": (
        lambda gpu: read_identity(gpu).minor_number,
        [(says(0), "0"), (says(11), "11"), (says(4_000_000), "", IMPLAUSIBLE), (UNSUPPORTED, "")],
    ),
    "Architecture": (lambda gpu: read_identity(gpu).architecture, [(says(9), "hopper"), (says(14), "unknown_14")]),
    "MigMode": (
        lambda gpu: ((modes := read_modes(gpu)).mig, modes.memory_os_managed),
        [
            *(
                (says(mode, pending), (on, None if on else False))
                for mode, pending, on in ((0, 0, False), (1, 0, True), (0, 1, False))
            ),
            *((says(7, 0), (None, False), IMPLAUSIBLE), (UNSUPPORTED, (None, False))),
        ],
    ),
    "ComputeMode": (
        lambda gpu: read_modes(gpu).compute,
        [(says(0), "default"), (says(2), "prohibited"), (says(3), "exclusive_process"), (says(9), "unknown_9")],
    ),
    # Of GPUs that are NUMA nodes (nvml.h).
    "NumaNodeId": (
        lambda gpu: read_modes(gpu).memory_os_managed,
        [(says(2), True), (UNSUPPORTED, False), (MISSING, False), (pynvml.NVML_ERROR_UNKNOWN, None, "unknown")],
    ),
    "ClockInfo": (
        lambda gpu: read_clocks(gpu).hertz.get("sm"),
        [(says(1410), 1.41e9), (says(20_000), 20e9), (says(21_000), None, *[IMPLAUSIBLE] * 4)],
    ),
    # Older than nvmlDeviceGetTemperatureV.
    "Temperature": (lambda gpu: read_thermal(gpu).gpu_celsius, [(says(84), 84), (says(NOT_AVAILABLE), None)]),
    "TemperatureThreshold": (
        lambda gpu: read_limits(gpu).threshold_celsius.get("slowdown"),
        [(says(89), 89), (says(20), 20), (says(19), None), (says(0), None)],
    ),
    # What no board can draw.
    "FieldValues": (
        lambda gpu: PowerReader().read(gpu).power_watts,
        [(fields_say({186: (0, "uiVal", 4_000_000_000)}), None, IMPLAUSIBLE)],
    ),
    # A cap of nothing is no cap.
    "EnforcedPowerLimit": (lambda gpu: PowerReader().read(gpu).limit_watts, [(says(150_000), 150.0), (says(0), None)]),
    "PowerManagementDefaultLimit": (
        lambda gpu: read_limits(gpu).power_default_watts,
        [(says(150_000), 150.0), (says(0), None)],
    ),
    "PowerManagementLimitConstraints": (
        lambda gpu: (read_limits(gpu).power_min_watts, read_limits(gpu).power_max_watts),
        [(says(100_000, 150_000), (100.0, 150.0)), (says(0, NOT_AVAILABLE), (0.0, None))],
    ),
    "BusType": (
        lambda gpu: pcie(gpu).generation,
        [(says(2), 4), (says(3), None), (MISSING, 4), (pynvml.NVML_ERROR_UNKNOWN, 4, "unknown")],
    ),
    "CurrPcieLinkGeneration": (
        lambda gpu: pcie(gpu).generation,
        [(says(1), 1), (says(7), 7), *((says(generation), None, IMPLAUSIBLE) for generation in (0, 8))],
    ),
    "CurrPcieLinkWidth": (
        lambda gpu: pcie(gpu).width,
        [(says(8), 8), *((says(width), None, IMPLAUSIBLE) for width in (0, 3, 63, 255))],
    ),
    "PcieThroughput": (
        lambda gpu: read_pcie_throughput(gpu).bytes_per_second,
        [(says(250), {"transmit": 250_000, "receive": 250_000})],
    ),
    "P2PStatus": (
        lambda gpu: set(read_topology(gpu).peers[0].p2p.values()),
        [
            *(
                (says(code), {name})
                for code, name in ((0, "ok"), (1, "chipset_not_supported"), (2, "gpu_not_supported"))
            ),
            *((says(code), {name}) for code, name in ((3, "topology_not_supported"), (4, "disabled_by_regkey"))),
            *((says(code), {name}) for code, name in ((5, "not_supported"), (6, "unknown"), (77, "unknown"))),
            # The peer may be the one that is lost.
            (pynvml.NVML_ERROR_GPU_IS_LOST, set(), *["peer_lost"] * 5),
        ],
    ),
    "RepairStatus": (
        lambda gpu: read_memory_repair(gpu).repair_pending,
        [
            (fills(bChannelRepairPending=0, bTpcRepairPending=1), {"channel": False, "tpc": True}),
            (fills(bChannelRepairPending=7, bTpcRepairPending=0), {"tpc": False}, IMPLAUSIBLE),
            (MISSING, {}),
            # A GPU that answers other calls is not lost.
            (pynvml.NVML_ERROR_RESET_REQUIRED, {}, "reset_required"),
        ],
    ),
    "UnrepairableMemoryFlag_v1": (
        lambda gpu: read_memory_repair(gpu).memory_unrepairable,
        [
            # The flag alone, as in nvml.h 13.1 to 13.3; after a version, as in pynvml 13.615 and DCGM 4.6.
            *((words(flag), bool(flag)) for flag in (0, 1)),
            *((words(0x1000008, flag), bool(flag)) for flag in (0, 1)),
            (UNSUPPORTED, None),
        ],
    ),
    # Only root may ask some drivers.
    "SramEccErrorStatus": (
        lambda gpu: read_memory_repair(gpu).sram_threshold_exceeded,
        [(pynvml.NVML_ERROR_NO_PERMISSION, None)],
    ),
    "EccMode": (
        lambda gpu: ((repair := read_memory_repair(gpu)).ecc_mode, repair.ecc_mode_pending),
        [(says(5, 1), (None, True), IMPLAUSIBLE)],
    ),
    "RemappedRows": (
        lambda gpu: ((repair := read_memory_repair(gpu)).remapped_rows, repair.row_remap_pending),
        [(says(0xFFFFFFFE, 1, 2, 0), ({"uncorrectable": 1}, None), *[IMPLAUSIBLE] * 2)],
    ),
    "MemoryInfo_v2": (
        lambda gpu: ((memory := read_device_memory(gpu)).total_bytes, memory.used_bytes, memory.free_bytes),
        [(fills(total=24 << 30, used=25 << 30, free=26 << 30), (24 << 30, None, None), *[IMPLAUSIBLE] * 2)],
    ),
    "BAR1MemoryInfo": (
        lambda gpu: ((memory := read_device_memory(gpu)).bar1_total_bytes, memory.bar1_used_bytes),
        [
            (fills(bar1Total=1 << 28, bar1Used=1 << 29), (1 << 28, None), IMPLAUSIBLE),
            (pynvml.NVML_ERROR_UNKNOWN, (None, None), "unknown"),
        ],
    ),
    "TopologyCommonAncestor": (
        lambda gpu: read_topology(gpu).peers[0].level,
        [
            *((says(code), name) for code, name in ((0, "internal"), (10, "pix"), (20, "pxb"), (30, "phb"))),
            *((says(code), name) for code, name in ((40, "node"), (50, "sys"), (7, None))),
            (pynvml.NVML_ERROR_GPU_IS_LOST, None, "peer_lost"),
        ],
    ),
}
"""By the end of the function's name: what is read, and for each answer its value, and the failures."""


@pytest.mark.parametrize(
    ("function", "read", "answer", "value", "failures"),
    [
        pytest.param(function, read, answer, value, failures, id=f"{function}-{number}")
        for function, (read, rows) in ANSWERS.items()
        for number, (answer, value, *failures) in enumerate(rows)
    ],
)
def test_an_answer_is_a_value_or_none(  # noqa: PLR0917 - the columns of the table
    bench: BenchMaker, function: str, read: Callable[[GpuRound], Any], answer: Any, value: object, failures: list[str]
) -> None:
    nvml = bench()
    nvml.answer(f"nvmlDeviceGet{function}", answer)
    round_ = nvml.round()
    assert read(round_) == value
    assert round_.inquiry.failures[: len(failures) + 1] == failures


def test_an_identity_is_the_boards_own_and_what_it_lacks_is_an_empty_label(bench: BenchMaker) -> None:
    reading = read_identity(bench("h100-8").round())
    assert (reading.name, reading.pci_bus_id) == ("NVIDIA H100 80GB HBM3", "0000:18:00.0")
    assert (reading.architecture, reading.compute_capability) == ("hopper", "9.0")
    assert (reading.vbios_version, reading.board_part_number) == ("96.00.A5.00.01", "692-2G520-0200-000")
    (sample,) = render(IdentityReading("", ""), GpuLabels("3", "GPU-3"))
    assert (sample.labels, sample.value) == (("3", "GPU-3", *[""] * 8), 1)


def test_memory_that_the_driver_reserves_is_told_apart_where_it_can_be(bench: BenchMaker) -> None:
    nvml = bench()
    new = read_device_memory(nvml.round())
    nvml.answer("nvmlDeviceGetMemoryInfo_v2", MISSING)
    old = read_device_memory(nvml.round())
    assert new.reserved_bytes is not None
    assert (new.total_bytes, old.total_bytes) == (23028 * 2**20, 23028 * 2**20)
    assert old.reserved_bytes is None
    assert old.used_bytes == (new.used_bytes or 0) + new.reserved_bytes


def test_a_temperature_is_asked_the_old_way_where_the_new_one_is_missing(bench: BenchMaker) -> None:
    nvml = bench("dual-a10")  # a driver from before nvmlDeviceGetTemperatureV
    reading = read_thermal(nvml.round())
    assert (reading.gpu_celsius, reading.memory_celsius, reading.margin_celsius) == (84, None, None)
    assert nvml.calls("nvmlDeviceGetTemperatureV") == 0
    assert read_thermal(bench("h100-8").round()).margin_celsius is not None


@pytest.mark.parametrize(
    ("card", "speed", "ratios"), [("rtx-4070-ti-super", says(45), {"0": 0.45}), ("h100-8", UNSUPPORTED, {})]
)
def test_fans_are_shares_and_may_be_absent(bench: BenchMaker, card: str, speed: Any, ratios: dict[str, float]) -> None:
    nvml = bench(card)
    shares = read_thermal(nvml.round()).fan_ratios
    assert list(shares) == ["0", "1"] * bool(ratios)
    assert all(0 <= share <= 1 for share in shares.values())
    nvml.answer("nvmlDeviceGetFanSpeed_v2", pynvml.NVML_ERROR_UNKNOWN)
    assert read_thermal(nvml.round()).fan_ratios == {}
    # Drivers that do not count the fans tell of them as one.
    nvml.answer("nvmlDeviceGetNumFans", MISSING)
    nvml.answer("nvmlDeviceGetFanSpeed", speed)
    assert read_thermal(nvml.round()).fan_ratios == ratios


@pytest.mark.parametrize(
    ("driver", "asked", "action"),
    [
        # NVML_GPU_RECOVERY_ACTION_GPU_RESET_BUS = 5 in nvidia-ml-py 13.580.65 to 13.580.126, gone in 13.590.44
        *(("580.95.05", 5, "reset the bus"), ("580.95.05", 4, "drain and reset")),
        # NV2080_CTRL_GPU_RECOVERY_ACTION_RECOVER_IMEX_DOMAIN = 5 in the open driver 595.44.02, and nvidia-ml-py 13.610
        *((driver, 5, "recover the IMEX domain") for driver in ("590.48.01", "595.44.02", "610.43.02", None)),
        # NVML_GPU_RECOVERY_ACTION_BUS_RESET and _SYSTEM_REBOOT: NVML's change log, 610 to 615
        *(("615.71.01", 6, "reset the bus"), ("615.71.01", 7, "reboot the system")),
    ],
)
def test_the_fifth_recovery_action_is_what_the_driver_of_the_day_calls_it(
    bench: BenchMaker, driver: str | None, asked: int, action: str
) -> None:
    nvml = bench()
    nvml.versions = DriverVersions(driver, None, None)
    nvml.answer(FIELDS, fields_say({230: (0, "uiVal", asked)}))
    assert read_recovery(nvml.round()).action == GPU_RECOVERY_ACTION.value_of(action)


def test_thresholds_are_temperatures_or_margins_of_a_driver_that_no_longer_tells_them(bench: BenchMaker) -> None:
    """NVML_FI_DEV_TEMPERATURE_*_TLIMIT (193-196): -8, -2 and 0 on H100, -5, -3 and 0 on B200; -1 is as good."""
    nvml = bench("h100-8")
    reading = read_limits(nvml.round())
    assert reading.threshold_celsius == {"shutdown": 95, "slowdown": 89, "memory_max": 95, "gpu_max": 87}
    assert reading.margin_threshold_celsius == {}
    margins = {"shutdown": -8.0, "slowdown": -1.0, "memory_max": 0.0, "gpu_max": 0.0}
    nvml.answer("nvmlDeviceGetTemperatureThreshold", UNSUPPORTED)
    nvml.answer(FIELDS, fields_say({193 + i: (0, "siVal", -1) for i in range(4)}))
    assert read_limits(nvml.round()).margin_threshold_celsius == {}, "-1 alone is NVML_VALUE_NOT_AVAILABLE"
    nvml.answer(FIELDS, fields_say({193 + i: (0, "siVal", int(each)) for i, each in enumerate(margins.values())}))
    round_ = nvml.round()
    reading = read_limits(round_)
    assert (reading.threshold_celsius, reading.margin_threshold_celsius) == ({}, margins)
    assert round_.inquiry.failures == []


@pytest.mark.parametrize(
    ("counts", "published"),
    [
        ((7, 1 << 40, 1 << 40, (1 << 64) - 2, 9), [7, None, None, None, 9]),
        # A single low reading is held back; two are a count that was cleared, and that shows.
        ((7_000_000, 0, 0, 3), [7_000_000, 7_000_000, 0, 3]),
    ],
)
def test_counts_of_memory_errors(bench: BenchMaker, counts: tuple[int, ...], published: list[float | None]) -> None:
    nvml, reader = bench("dual-a10"), EccReader()
    for count, expected in zip(counts, published, strict=True):
        nvml.answer("nvmlDeviceGetTotalEccErrors", says(count))
        round_ = nvml.round()
        reading = reader.read(round_)
        assert [told.get("corrected") for told in (reading.volatile_errors, reading.aggregate_errors)] == [expected] * 2
        assert set(round_.inquiry.failures) == (set() if expected is not None else {"implausible"})
        nvml.clock.advance(5)


def milliwatts(**values: int) -> dict[int | tuple[int, int], tuple[int, str, float]]:
    """Fields of power by name: NVML_FI_DEV_POWER_*, scope 0 the GPU and 1 "the module (e.g. CPU + GPU)" (nvml.h)."""
    fields = {
        "average": (185, 0),
        "instant": (186, 0),
        "module": (186, 1),
        "limit": (190, 0),
        "module_limit": (190, 1),
        "requested": (192, 0),
    }
    return {fields[name]: (0, "uiVal", value) for name, value in values.items()}


GB200 = {"instant": 165_930, "module": 467_680, "module_limit": 2_500_000, "requested": 1_200_000}
"""From the nvidia-smi output of a GB200 (NVIDIA/k8s-test-infra, qx-gb200.xml)."""


@pytest.mark.parametrize(
    ("fields", "limit", "reading"),
    [
        # The instant one where the driver has it; if it is zero or none, the average, and then the call.
        (milliwatts(instant=151_500, average=90_000), 400, PowerReading(151.5, 400, None)),
        (milliwatts(instant=0, average=90_000), 400, PowerReading(90.0, 400, None)),
        (milliwatts(average=90_000), 400, PowerReading(90.0, 400, None)),
        (milliwatts(instant=0, average=0), 400, PowerReading(88.0, 400, None)),
        ({}, 400, PowerReading(88.0, 400, None)),
        (milliwatts(**GB200), 1200, PowerReading(165.93, 1200, None, None, 467.68, 2500)),
        # A driver that looks at no scope says the same of the module.
        (
            milliwatts(instant=300_000, module=300_000, limit=300_000, module_limit=300_000),
            300,
            PowerReading(300, 300, None),
        ),
        # A limit that was asked for shows where another one applies.
        (milliwatts(requested=500_000), 400, PowerReading(88.0, 400, None, 500)),
        (milliwatts(requested=401_000), 400, PowerReading(88.0, 400, None)),
    ],
)
def test_power_is_of_the_gpu_or_of_its_module(
    bench: BenchMaker, fields: dict[int | tuple[int, int], tuple[int, str, float]], limit: int, reading: PowerReading
) -> None:
    nvml = bench()
    nvml.answer(FIELDS, fields_say(fields))
    nvml.answer("nvmlDeviceGetPowerUsage", says(88_000))
    nvml.answer("nvmlDeviceGetEnforcedPowerLimit", says(limit * 1000))
    read = PowerReader().read(nvml.round())
    assert dataclasses.replace(read, energy_joules=None) == reading


def test_a_card_without_c2c_has_none_and_is_asked_once(bench: BenchMaker) -> None:
    nvml, reader = bench("h100-8"), C2cReader()
    for _ in range(3):
        round_ = nvml.round()
        assert reader.read(round_) == C2cReading(None, None, {}, None)
        assert round_.inquiry.failures == []
    assert nvml.calls("nvmlDeviceGetFieldValues") == 1


def test_a_c2c_link_that_is_down_is_found() -> None:
    def samples(at: float) -> Iterator[Sample]:
        yield from loaded(at, 1.0)
        yield GPU_C2C_LINKS.sample(10, *GPU)
        yield GPU_C2C_LINKS_UP.sample(10 if at < 600 else 9, *GPU)

    fed = Fed()
    fed.run(9 * MINUTE, samples)
    assert fed.codes() == set()
    fed.run(30 * MINUTE, samples)
    assert fed.state("c2c.down") == "confirmed"
    assert fed.finding("c2c.down").measured == "9 of 10 links are up"


def test_a_profile_without_a_name_has_its_number() -> None:
    assert [*profiles_in([1 << 0 | 1 << 14 | 1 << 15, *[0] * 5, 1 << 8, 0])] == [
        "max_p",
        "mig",
        "profile_15",
        "profile_200",
    ]


def test_errors_are_told_by_memory_once_there_are_any(bench: BenchMaker) -> None:
    nvml, reader = bench("h100-8", 'at = 30\neffect = { kind = "ecc", uncorrected = 3 }'), EccReader()
    assert reader.read(nvml.round()).memory_errors == {}
    assert nvml.calls("nvmlDeviceGetMemoryErrorCounter") == 0
    nvml.clock.advance(60)

    def counter(_device: Any, severity: Any, kind: Any, memory: Any, out: Any) -> int:
        assert (severity.value, kind.value) == (1, 0)
        out._obj.value = {2: 1, 7: 2}[memory.value]
        return int(pynvml.NVML_SUCCESS)

    nvml.answer("nvmlDeviceGetMemoryErrorCounter", counter)
    reading = reader.read(nvml.round())
    assert reading.memory_errors == {("uncorrected", "dram"): 1, ("uncorrected", "sram"): 2}
