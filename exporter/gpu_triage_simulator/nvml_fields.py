"""``nvmlDeviceGetFieldValues``: the value of each field ID, and which drivers and models have it."""

from collections.abc import Callable
from ctypes import c_int, sizeof
from dataclasses import dataclass
from typing import Any, Final

from gpu_triage_simulator import effects, gauges, nvml_nvlink
from gpu_triage_simulator.nvml_calls import OUT, Function
from gpu_triage_simulator.nvml_library import CODES, FIELD_VALUE, SUCCESS, Failure
from gpu_triage_simulator.nvml_load import memory_celsius
from gpu_triage_simulator.nvml_pcie import ecc_errors, remapped_rows, replays
from gpu_triage_simulator.nvml_session import Device
from gpu_triage_simulator.pcie_faults import pcie_errors

_UNSIGNED: Final = 1
_UNSIGNED_LONG_LONG: Final = 3
_SIGNED: Final = 5
_MEMBERS: Final = {_UNSIGNED: "uiVal", _UNSIGNED_LONG_LONG: "ullVal", _SIGNED: "siVal"}
_MODULE: Final = 1  # scope of power fields
_C2C_LINKS: Final = 10
_C2C_MEGABYTES_PER_SECOND: Final = 45_000
_BANK_GROUPS: Final = 512
_LATENCY_MICROSECONDS: Final = 8


@dataclass(frozen=True, slots=True)
class Field:
    # its value; gets the device and the scope ID, and returns None if the scope does not exist
    read: Callable[[Device, int], int | None]
    kind: int = _UNSIGNED  # type of the value
    since: tuple[int, ...] = (0,)  # driver version that first has it
    feature: str | None = None  # feature the GPU model needs
    unless_mig: bool = False  # whether it is only available with MIG off

    def supported(self, device: Device) -> bool:
        if self.unless_mig and device.state.conditions.mig is not None:
            return False
        if self.feature == "ecc" and not device.state.conditions.ecc_mode:
            return False
        return self.feature is None or self.feature in device.model.features


def _throttled(reason: int) -> Callable[[Device, int], int]:
    return lambda device, _scope: int(device.state.throttled_seconds(reason) * 1e9)


def _counted(reason: int, first: tuple[int, ...]) -> Field:
    return Field(_throttled(reason), _UNSIGNED_LONG_LONG, first, "event_reason_counters")


def _milliwatts(device: Device, scope: int) -> int | None:
    """Power of the GPU (scope 0), or of the module (1) if there is one."""
    drawn, power = device.gauges.reading_watts, device.model.power
    if scope == _MODULE:
        return None if power.module_limit is None else round((drawn + power.module_rest) * 1000)
    return round(drawn * 1000) if scope == 0 else None


def _power_limit(device: Device, scope: int) -> int | None:
    if scope == _MODULE:
        limit = device.model.power.module_limit
        return None if limit is None else round(limit * 1000)
    return round(device.state.conditions.power_limit_watts * 1000)


def _requested_limit(device: Device, _scope: int) -> int:
    limit = device.host.timeline.latest(effects.PowerLimit, device.state.index, device.state.seconds)
    requested_watts = None if limit is None else limit.requested_watts
    return round((requested_watts or device.state.conditions.power_limit_watts) * 1000)


def _transmitted(device: Device, _scope: int) -> int:
    return int(device.state.counter("transmit")) % (1 << device.model.pcie.byte_counter_bits)


def _received(device: Device, _scope: int) -> int:
    return int(device.state.counter("receive")) % (1 << device.model.pcie.byte_counter_bits)


def _below_limit(threshold: str) -> Callable[[Device, int], int]:
    """A threshold in T.Limit form: degrees the GPU can still warm up once it is reached."""
    return lambda device, _scope: int(device.model.thermal.gpu_max - getattr(device.model.thermal, threshold))


def _pcie_errors(rate: str) -> Field:
    """PCIe link errors seen by the GPU's end."""
    return Field(lambda device, _scope: pcie_errors(device.host.timeline, device.state, rate, "gpu"), since=(535,))


def _none_counted() -> Field:
    return Field(lambda _device, _scope: 0, since=(535,))


def _of_nvlink(
    read: Callable[[Device, int], int | None], kind: int = _UNSIGNED, since: tuple[int, ...] = (0,)
) -> Field:
    """An NVLink field: unavailable with MIG on."""
    return Field(read, kind, since, unless_mig=True)


def _of_c2c(read: Callable[[Device, int], int | None], since: tuple[int, ...]) -> Field:
    return Field(read, since=since, feature="c2c")


def _of_each_c2c(value: int) -> Callable[[Device, int], int | None]:
    return lambda _device, link: value if link < _C2C_LINKS else None


def _bank_repair(value: int) -> Field:
    return Field(lambda _device, _scope: value, since=(580,), feature="bank_remap")


def _fec_blocks(repaired: int) -> Field:
    return _of_nvlink(
        lambda device, link: nvml_nvlink.link_fec_blocks(device, link, repaired), _UNSIGNED_LONG_LONG, (570,)
    )


def _rows(number: int) -> Field:
    return Field(lambda device, _: remapped_rows(device)[number], feature="remapped_rows", unless_mig=True)


def _link_errors(rate: str) -> Callable[[Device, int], int | None]:
    return lambda device, link: nvml_nvlink.link_errors(device, link, rate)


def _one_link_errors(rate: str, first: int, number: int) -> dict[int, Field]:
    """Fields for six links in the oldest drivers' form: field IDs from `first`, links from `number`."""

    def field(link: int) -> Field:
        return _of_nvlink(lambda device, _scope: nvml_nvlink.link_errors(device, link, rate), _UNSIGNED_LONG_LONG)

    return {first + i: field(number + i) for i in range(6)}


FIELDS: Final[dict[int, Field]] = {
    **_one_link_errors("crc_per_hour", 32, 0),
    **_one_link_errors("replay_per_hour", 46, 0),
    **_one_link_errors("recovery_per_hour", 53, 0),
    **_one_link_errors("crc_per_hour", 96, 6),
    **_one_link_errors("replay_per_hour", 108, 6),
    **_one_link_errors("recovery_per_hour", 114, 6),
    3: Field(lambda device, _: ecc_errors(device, 0, 0), _UNSIGNED_LONG_LONG, feature="ecc"),
    4: Field(lambda device, _: ecc_errors(device, 1, 0), _UNSIGNED_LONG_LONG, feature="ecc"),
    5: Field(lambda device, _: ecc_errors(device, 0, 1), _UNSIGNED_LONG_LONG, feature="ecc"),
    6: Field(lambda device, _: ecc_errors(device, 1, 1), _UNSIGNED_LONG_LONG, feature="ecc"),
    74: Field(_throttled(gauges.SW_POWER_CAP), _UNSIGNED_LONG_LONG),
    75: Field(_throttled(gauges.SW_THERMAL), _UNSIGNED_LONG_LONG),
    76: Field(lambda _device, _scope: 0, _UNSIGNED_LONG_LONG),
    77: Field(_throttled(gauges.BOARD_LIMIT), _UNSIGNED_LONG_LONG),
    79: Field(_throttled(gauges.RELIABILITY), _UNSIGNED_LONG_LONG),
    82: Field(lambda device, _: memory_celsius(device), feature="memory_temperature"),
    90: _of_nvlink(nvml_nvlink.common_speed),
    91: _of_nvlink(lambda device, _: device.model.nvlinks),
    94: Field(lambda device, _: replays(device)),
    95: Field(lambda _device, _scope: 0),
    138: _of_nvlink(nvml_nvlink.link_kib, _UNSIGNED_LONG_LONG, (450,)),
    139: _of_nvlink(nvml_nvlink.link_kib, _UNSIGNED_LONG_LONG, (450,)),
    142: _rows(0),
    143: _rows(1),
    144: _rows(2),
    145: _rows(3),
    161: _of_nvlink(_link_errors("replay_per_hour"), _UNSIGNED_LONG_LONG, (520,)),
    162: _of_nvlink(_link_errors("recovery_per_hour"), _UNSIGNED_LONG_LONG, (520,)),
    163: _of_nvlink(_link_errors("crc_per_hour"), _UNSIGNED_LONG_LONG, (520,)),
    164: _of_nvlink(nvml_nvlink.link_speed, since=(520,)),
    165: _of_nvlink(nvml_nvlink.link_state, since=(520,)),
    169: Field(lambda _device, _scope: 0, since=(525,)),
    170: _of_c2c(lambda _device, _link: _C2C_LINKS, (525,)),
    171: _of_c2c(_of_each_c2c(1), (525,)),
    172: _of_c2c(_of_each_c2c(_C2C_MEGABYTES_PER_SECOND), (525,)),
    173: _pcie_errors("correctable_per_hour"),
    174: _pcie_errors("replays_per_hour"),
    175: _none_counted(),
    176: _pcie_errors("correctable_per_hour"),
    177: _pcie_errors("correctable_per_hour"),
    178: _none_counted(),
    179: _pcie_errors("nonfatal_per_hour"),
    180: _pcie_errors("fatal_per_hour"),
    181: _none_counted(),
    182: _pcie_errors("correctable_per_hour"),
    183: _none_counted(),
    185: Field(_milliwatts, since=(535,), feature="power_average"),
    186: Field(_milliwatts, since=(535,)),
    187: Field(lambda device, _: round(device.model.power.min_limit * 1000), since=(535,)),
    188: Field(lambda device, _: round(device.model.power.max_limit * 1000), since=(535,)),
    189: Field(lambda device, _: round(device.model.power.default_limit * 1000), since=(535,)),
    190: Field(_power_limit, since=(535,)),
    192: Field(_requested_limit, since=(535,)),
    193: Field(_below_limit("shutdown"), _SIGNED, (535,), "tlimit"),
    194: Field(_below_limit("slowdown"), _SIGNED, (535,), "tlimit"),
    195: Field(lambda _device, _scope: 0, _SIGNED, (535,), "tlimit"),
    196: Field(_below_limit("gpu_max"), _SIGNED, (535,), "tlimit"),
    197: Field(_transmitted, _UNSIGNED_LONG_LONG, (555,), "pcie_byte_counters"),
    198: Field(_received, _UNSIGNED_LONG_LONG, (555,), "pcie_byte_counters"),
    202: _of_nvlink(nvml_nvlink.link_bytes, _UNSIGNED_LONG_LONG, (570,)),
    204: _of_nvlink(nvml_nvlink.link_bytes, _UNSIGNED_LONG_LONG, (570,)),
    214: _of_nvlink(nvml_nvlink.link_failed_recoveries, _UNSIGNED_LONG_LONG, (570,)),
    215: _of_nvlink(nvml_nvlink.link_recoveries, _UNSIGNED_LONG_LONG, (570,)),
    220: _of_nvlink(nvml_nvlink.link_bit_error_rate, _UNSIGNED_LONG_LONG, (570,)),
    221: _of_nvlink(nvml_nvlink.link_symbol_errors, _UNSIGNED_LONG_LONG, (570,)),
    222: _of_nvlink(nvml_nvlink.link_bit_error_rate, _UNSIGNED_LONG_LONG, (570,)),
    231: _of_c2c(_of_each_c2c(0), (570,)),
    232: _of_c2c(_of_each_c2c(0), (570,)),
    233: _of_c2c(_of_each_c2c(0), (570,)),
    **{235 + repaired: _fec_blocks(repaired) for repaired in range(16)},
    230: Field(lambda device, _: device.state.conditions.recovery_action, since=(570,)),
    303: _bank_repair(0),
    304: _bank_repair(0),
    305: _bank_repair(_BANK_GROUPS),
    306: _bank_repair(0),
    307: _bank_repair(0),
}
"""Fields with an ID that never changed."""

_SLOWDOWN_REASONS: Final = (gauges.SW_THERMAL, gauges.HW_THERMAL, gauges.HW_POWER_BRAKE)
_EARLY_SLOWDOWN: Final = {251 + i: _counted(reason, (575, 51)) for i, reason in enumerate(_SLOWDOWN_REASONS)}
_LATE_SLOWDOWN: Final = {269 + i: _counted(reason, (580, 82)) for i, reason in enumerate(_SLOWDOWN_REASONS)}
_SLOWDOWN_MOVED: Final = (580, 82)


def field_of(number: int, driver: tuple[int, ...]) -> Field | None:
    """The field with an ID in a driver version; None if that driver does not support it."""
    slowdown = _LATE_SLOWDOWN if driver >= _SLOWDOWN_MOVED else _EARLY_SLOWDOWN
    field = FIELDS.get(number) or slowdown.get(number)
    return field if field is not None and driver >= field.since else None


def _field_values(device: Device, count: int, out: int | None) -> None:
    if not out or count <= 0:
        raise Failure("INVALID_ARGUMENT")
    driver = device.host.scenario.driver.numbers
    stamp = round(device.host.wall(device.state.seconds) * 1_000_000)
    for i in range(count):
        entry: Any = FIELD_VALUE.from_address(out + i * sizeof(FIELD_VALUE))
        entry.timestamp = stamp
        entry.latencyUsec = _LATENCY_MICROSECONDS
        field = field_of(entry.fieldId, driver)
        if field is None:
            entry.nvmlReturn = CODES["INVALID_ARGUMENT"]
            continue
        value = field.read(device, entry.scopeId) if field.supported(device) else None
        if value is None:
            entry.nvmlReturn = CODES["NOT_SUPPORTED"]
            continue
        entry.valueType = field.kind
        setattr(entry.value, _MEMBERS[field.kind], value)
        entry.nvmlReturn = SUCCESS


FUNCTIONS: Final = (Function("nvmlDeviceGetFieldValues", (c_int, OUT), _field_values),)
