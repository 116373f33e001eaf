from __future__ import annotations

import pynvml
import pytest
from tests.nvml_bench import BenchMaker, says

from gpu_triage.errors import DriverReplaced, DriverUnavailable, GpuUnavailable
from gpu_triage.read.gpu.activity import read_media
from gpu_triage.read.gpu.clocks_and_limits import read_clocks, read_limits
from gpu_triage.read.gpu.device_memory import read_device_memory
from gpu_triage.read.gpu.ecc import EccReader, read_memory_repair
from gpu_triage.read.gpu.identity import read_identity
from gpu_triage.read.gpu.modes import read_modes
from gpu_triage.read.gpu.power import PowerReader
from gpu_triage.read.gpu.thermal import read_thermal


def test_what_is_not_supported_is_none_and_not_asked_again_until_forgotten(bench: BenchMaker) -> None:
    nvml = bench()
    nvml.answer("nvmlDeviceGetEncoderUtilization", pynvml.NVML_ERROR_NOT_SUPPORTED)
    for _ in range(3):
        round_ = nvml.round()
        assert read_media(round_).encoder_utilization_ratio is None
        assert round_.inquiry.failures == []
    assert nvml.calls("nvmlDeviceGetEncoderUtilization") == 1
    nvml.devices[0].unsupported.clear()
    nvml.restore("nvmlDeviceGetEncoderUtilization")
    assert read_media(nvml.round()).encoder_utilization_ratio == 0.0


def test_the_jpeg_engine_is_a_share_of_time_and_junk_is_not(bench: BenchMaker) -> None:
    nvml = bench()
    nvml.answer("nvmlDeviceGetJpgUtilization", says(40, 167_000))
    assert read_media(nvml.round()).jpeg_utilization_ratio == 0.4
    nvml.answer("nvmlDeviceGetJpgUtilization", says(101, 167_000))
    assert read_media(nvml.round()).jpeg_utilization_ratio is None
    nvml.answer("nvmlDeviceGetJpgUtilization", pynvml.NVML_ERROR_NOT_SUPPORTED)
    round_ = nvml.round()
    assert read_media(round_).jpeg_utilization_ratio is None
    assert round_.inquiry.failures == []


def test_open_encoder_sessions_are_counted_and_junk_is_not(bench: BenchMaker) -> None:
    nvml = bench("dual-a10")
    assert read_media(nvml.round()).encoder_sessions == 0
    nvml.answer("nvmlDeviceGetEncoderStats", says(3, 60, 1500))
    assert read_media(nvml.round()).encoder_sessions == 3
    nvml.answer("nvmlDeviceGetEncoderStats", says(4_000_000_000, 0, 0))
    assert read_media(nvml.round()).encoder_sessions is None
    nvml.answer("nvmlDeviceGetEncoderStats", pynvml.NVML_ERROR_NOT_SUPPORTED)
    round_ = nvml.round()
    assert read_media(round_).encoder_sessions is None
    assert round_.inquiry.failures == []


def test_what_one_gpu_lacks_another_is_still_asked(bench: BenchMaker) -> None:
    nvml = bench()
    nvml.answer("nvmlDeviceGetEncoderUtilization", pynvml.NVML_ERROR_NOT_SUPPORTED)
    read_media(nvml.round(0))
    read_media(nvml.round(1))
    assert nvml.calls("nvmlDeviceGetEncoderUtilization") == 2


def test_a_function_that_fails_costs_its_own_field_and_is_named(bench: BenchMaker) -> None:
    nvml = bench()
    nvml.answer("nvmlDeviceGetBAR1MemoryInfo", pynvml.NVML_ERROR_UNKNOWN)
    for _ in range(2):
        round_ = nvml.round()
        reading = read_device_memory(round_)
        assert (reading.bar1_total_bytes, reading.total_bytes) == (None, 23028 * 2**20)
        assert round_.inquiry.failures == ["unknown"]
    assert nvml.calls("nvmlDeviceGetBAR1MemoryInfo") == 2


def test_an_error_code_nobody_has_heard_of_is_named_by_its_number(bench: BenchMaker) -> None:
    nvml = bench()
    nvml.answer("nvmlDeviceGetBAR1MemoryInfo", 345)
    round_ = nvml.round()
    read_device_memory(round_)
    assert round_.inquiry.failures == ["error_345"]


@pytest.mark.parametrize(
    ("code", "reason"), [(pynvml.NVML_ERROR_GPU_IS_LOST, "lost"), (pynvml.NVML_ERROR_RESET_REQUIRED, "reset_required")]
)
def test_a_gpu_that_is_gone_ends_its_round(bench: BenchMaker, code: int, reason: str) -> None:
    nvml = bench()
    nvml.answer("nvmlDeviceGetEncoderUtilization", code)
    with pytest.raises(GpuUnavailable) as gone:
        read_media(nvml.round())
    assert gone.value.reason == reason


def test_a_gpu_that_is_lost_says_so_through_a_field_as_well(bench: BenchMaker) -> None:
    nvml = bench("h100-8", 'at = "1s"\ngpu = 0\neffect = { kind = "lost" }')
    nvml.clock.advance(2)
    with pytest.raises(GpuUnavailable) as gone:
        nvml.round().inquiry.fields([186])
    assert gone.value.reason == "lost"


def test_a_driver_that_is_gone_is_not_blamed_on_the_gpu(bench: BenchMaker) -> None:
    nvml = bench()
    nvml.answer("nvmlDeviceGetEncoderUtilization", pynvml.NVML_ERROR_UNINITIALIZED)
    with pytest.raises(DriverUnavailable) as gone:
        read_media(nvml.round())
    assert gone.value.reason == "uninitialized"
    nvml.answer("nvmlDeviceGetEncoderUtilization", pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)
    with pytest.raises(DriverReplaced):
        read_media(nvml.round())


def test_identity_is_the_boards_own(bench: BenchMaker) -> None:
    reading = read_identity(bench("h100-8").round())
    assert (reading.name, reading.architecture, reading.compute_capability) == (
        "NVIDIA H100 80GB HBM3",
        "hopper",
        "9.0",
    )
    assert reading.pci_bus_id == "0000:18:00.0"


@pytest.mark.parametrize(
    ("minor", "told", "failures"), [(0, "0", []), (11, "11", []), (4_000_000, "", ["implausible"])]
)
def test_a_gpu_is_told_by_the_minor_number_of_its_device_file(
    bench: BenchMaker, minor: int, told: str, failures: list[str]
) -> None:
    nvml = bench()
    nvml.answer("nvmlDeviceGetMinorNumber", says(minor))
    round_ = nvml.round()
    assert (read_identity(round_).minor_number, round_.inquiry.failures) == (told, failures)


def test_a_gpu_without_a_device_file_has_no_minor_number(bench: BenchMaker) -> None:
    nvml = bench()
    nvml.answer("nvmlDeviceGetMinorNumber", pynvml.NVML_ERROR_NOT_SUPPORTED)
    round_ = nvml.round()
    assert (read_identity(round_).minor_number, round_.inquiry.failures) == ("", [])


def test_an_architecture_newer_than_this_program_is_told_by_number(bench: BenchMaker) -> None:
    nvml = bench()
    nvml.answer("nvmlDeviceGetArchitecture", says(14))
    assert read_identity(nvml.round()).architecture == "unknown_14"


@pytest.mark.parametrize(
    ("states", "mig", "failures"),
    [((0, 0), False, []), ((1, 0), True, []), ((0, 1), False, []), ((7, 0), None, ["implausible"])],
)
def test_mig_mode_is_the_one_that_holds_now(
    bench: BenchMaker, states: tuple[int, int], *, mig: bool | None, failures: list[str]
) -> None:
    nvml = bench()
    nvml.answer("nvmlDeviceGetMigMode", says(*states))
    round_ = nvml.round()
    assert read_modes(round_).mig is mig
    assert round_.inquiry.failures == failures


def test_a_gpu_without_mig_has_no_mig_mode(bench: BenchMaker) -> None:
    round_ = bench("dual-a10").round()
    assert read_modes(round_).mig is None
    assert round_.inquiry.failures == []


@pytest.mark.parametrize(
    ("mode", "name"), [(0, "default"), (2, "prohibited"), (3, "exclusive_process"), (9, "unknown_9")]
)
def test_compute_modes_have_names(bench: BenchMaker, mode: int, name: str) -> None:
    nvml = bench()
    nvml.answer("nvmlDeviceGetComputeMode", says(mode))
    assert read_modes(nvml.round()).compute == name


def test_clocks_are_in_hertz(bench: BenchMaker) -> None:
    nvml = bench("dual-a10")
    assert read_clocks(nvml.round()).hertz["sm"] == 1.41e9
    limits = read_limits(nvml.round())
    assert limits.clock_max_hertz["sm"] == 1.71e9
    assert (limits.power_default_watts, limits.power_min_watts) == (150.0, 100.0)


def test_only_what_cannot_be_is_left_out_of_the_clocks(bench: BenchMaker) -> None:
    nvml = bench()
    nvml.answer("nvmlDeviceGetClockInfo", says(21_000))
    round_ = nvml.round()
    assert read_clocks(round_).hertz == {}
    assert round_.inquiry.failures == ["implausible"] * 4


def test_memory_that_the_driver_reserves_is_told_apart_where_it_can_be(bench: BenchMaker) -> None:
    nvml = bench()
    new = read_device_memory(nvml.round())
    nvml.answer("nvmlDeviceGetMemoryInfo_v2", pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
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


def test_a_temperature_that_is_not_available_is_no_frost(bench: BenchMaker) -> None:
    nvml = bench()
    nvml.answer("nvmlDeviceGetTemperature", says(0xFFFFFFFF))
    assert read_thermal(nvml.round()).gpu_celsius is None


def test_fans_are_shares_and_boards_without_fans_have_none(bench: BenchMaker) -> None:
    nvml = bench("rtx-4070-ti-super")
    shares = read_thermal(nvml.round()).fan_ratios
    assert list(shares) == ["0", "1"]
    assert all(0 <= share <= 1 for share in shares.values())
    nvml.answer("nvmlDeviceGetFanSpeed_v2", pynvml.NVML_ERROR_UNKNOWN)
    assert read_thermal(nvml.round()).fan_ratios == {}
    assert read_thermal(bench("h100-8").round()).fan_ratios == {}


def test_thresholds_that_are_not_set_are_left_out(bench: BenchMaker) -> None:
    nvml = bench("h100-8")
    assert read_limits(nvml.round()).threshold_celsius == {
        "shutdown": 95,
        "slowdown": 89,
        "memory_max": 95,
        "gpu_max": 87,
    }
    nvml.answer("nvmlDeviceGetTemperatureThreshold", says(0))
    assert read_limits(nvml.round()).threshold_celsius == {}


def test_error_counters_hold_a_single_low_reading_back(bench: BenchMaker) -> None:
    nvml, reader = bench("dual-a10"), EccReader()
    assert reader.read(nvml.round()).aggregate_errors == {"corrected": 2, "uncorrected": 0}
    nvml.answer("nvmlDeviceGetTotalEccErrors", says(0))
    assert reader.read(nvml.round()).aggregate_errors["corrected"] == 2
    assert reader.read(nvml.round()).aggregate_errors["corrected"] == 0


def test_an_absurd_count_of_memory_errors_is_dropped_and_noted(bench: BenchMaker) -> None:
    nvml, reader, counts = bench("dual-a10"), EccReader(), []
    for count in (7, 1 << 40, 1 << 40, (1 << 64) - 2, 9):
        nvml.answer("nvmlDeviceGetTotalEccErrors", says(count))
        round_ = nvml.round()
        counts.append(reader.read(round_).volatile_errors.get("corrected"))
        assert set(round_.inquiry.failures) == (set() if counts[-1] else {"implausible"})
        nvml.clock.advance(5)
    assert counts == [7, None, None, None, 9]


def test_a_count_of_memory_errors_that_was_cleared_is_shown_as_cleared(bench: BenchMaker) -> None:
    nvml, reader, counts = bench("dual-a10"), EccReader(), []
    for count in (7_000_000, 0, 0, 3):
        nvml.answer("nvmlDeviceGetTotalEccErrors", says(count))
        counts.append(reader.read(nvml.round()).aggregate_errors["corrected"])
        nvml.clock.advance(5)
    assert counts == [7_000_000, 7_000_000, 0, 3]


def test_repairs_of_ampere_and_later_are_rows(bench: BenchMaker) -> None:
    nvml = bench("h100-8", 'at = 0\ngpu = 0\neffect = { kind = "row_remap", uncorrectable = 2, pending = true }')
    round_ = nvml.round()
    reading = read_memory_repair(round_)
    assert round_.inquiry.failures == []
    assert reading.remapped_rows == {"correctable": 0, "uncorrectable": 2}
    assert (reading.row_remap_pending, reading.row_remap_failure, reading.ecc_mode) == (True, False, True)
    assert reading.sram_threshold_exceeded is False
    assert sum(reading.row_remap_banks.values()) > 0
    assert (reading.retired_pages, reading.retired_pages_pending) == ({}, None)


def test_being_refused_a_question_for_root_is_no_failure(bench: BenchMaker) -> None:
    nvml = bench("h100-8")
    nvml.answer("nvmlDeviceGetSramEccErrorStatus", pynvml.NVML_ERROR_NO_PERMISSION)
    for _ in range(2):
        round_ = nvml.round()
        assert read_memory_repair(round_).sram_threshold_exceeded is None
        assert round_.inquiry.failures == []
    assert nvml.calls("nvmlDeviceGetSramEccErrorStatus") == 1


def test_a_state_that_is_neither_on_nor_off_is_none(bench: BenchMaker) -> None:
    nvml = bench("h100-8")
    nvml.answer("nvmlDeviceGetEccMode", says(5, 1))
    nvml.answer("nvmlDeviceGetRemappedRows", says(0xFFFFFFFE, 1, 2, 0))
    round_ = nvml.round()
    reading = read_memory_repair(round_)
    assert (reading.ecc_mode, reading.ecc_mode_pending) == (None, True)
    assert reading.remapped_rows == {"uncorrectable": 1}
    assert (reading.row_remap_pending, reading.row_remap_failure) == (None, False)
    assert round_.inquiry.failures == ["implausible"] * 3


def test_a_driver_that_does_not_count_the_fans_tells_of_them_as_one(bench: BenchMaker) -> None:
    nvml = bench("rtx-4070-ti-super")
    nvml.answer("nvmlDeviceGetNumFans", pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    nvml.answer("nvmlDeviceGetFanSpeed", says(45))
    assert read_thermal(nvml.round()).fan_ratios == {"0": 0.45}
    nvml = bench("h100-8")
    nvml.answer("nvmlDeviceGetNumFans", pynvml.NVML_ERROR_FUNCTION_NOT_FOUND)
    nvml.answer("nvmlDeviceGetFanSpeed", pynvml.NVML_ERROR_NOT_SUPPORTED)
    assert read_thermal(nvml.round()).fan_ratios == {}


def test_a_power_cap_of_nothing_is_no_cap(bench: BenchMaker) -> None:
    nvml = bench("dual-a10")
    nvml.answer("nvmlDeviceGetEnforcedPowerLimit", says(0))
    nvml.answer("nvmlDeviceGetPowerManagementDefaultLimit", says(0))
    nvml.answer("nvmlDeviceGetPowerManagementLimitConstraints", says(0, 0xFFFFFFFF))
    round_ = nvml.round()
    limits = read_limits(round_)
    assert (limits.power_default_watts, limits.power_max_watts) == (None, None)
    assert PowerReader().read(round_).limit_watts is None
    assert round_.inquiry.failures == []
