"""NVLink: the fields and functions of single links."""

from ctypes import c_uint
from typing import Final

from gpu_triage_simulator import effects
from gpu_triage_simulator.nvml_calls import OUT, Function, at, put
from gpu_triage_simulator.nvml_library import PCI_INFO, Failure
from gpu_triage_simulator.nvml_session import Device

ALL_LINKS: Final = 0xFFFFFFFF
"""Scope of the sum over all links."""

_BYTES_PER_SECOND: Final = 8e9
"""Traffic of one link in each direction at full utilization."""
_ACTIVE: Final = 1
_SPEED_MBPS: Final = {2: 25_781, 3: 25_000, 4: 26_562, 5: 53_125}
"""Line rate of a link per direction in MB/s by NVLink version, as ``nvidia-smi nvlink -s`` prints it."""
_BRIDGE_MBPS: Final = 14_062
"""With four lanes per link instead of eight, as on GA102 (NVIDIA Ampere GA102 GPU Architecture)."""
_FIRST_WITH_PACKETS: Final = 5
_BRIDGED_VERSION: Final = 3
_FIRST_SWITCHED: Final = 3
_SWITCHES: Final = 4
_FIRST_SWITCH_BUS: Final = 0xC3


def link_state(device: Device, link: int) -> int | None:
    """0 inactive, 1 active, 2 asleep, 3 traffic disabled; None for a link the GPU does not have."""
    if link >= device.model.nvlinks:
        return None
    return device.state.conditions.links_down.get(link, 1) if _connected(device, link) else 0


def link_speed(device: Device, link: int) -> int | None:
    state = link_state(device, link)
    ratio = device.state.conditions.links_slow.get(link, 1.0)
    return None if state is None else int(_speed(device) * ratio) if state == _ACTIVE else 0


def common_speed(device: Device, _scope: int) -> int | None:
    """Line rate that all active links share, 0 without one; None for a GPU without links."""
    speeds = [link_speed(device, link) or 0 for link in range(device.model.nvlinks)]
    return max(speeds, default=None)


def _speed(device: Device) -> int:
    version = device.model.nvlink_version
    return _BRIDGE_MBPS if device.model.nvlink_bridge and version == _BRIDGED_VERSION else _SPEED_MBPS[version]


def link_kib(device: Device, scope: int) -> int | None:
    """Traffic of one link, or of all."""
    count = 0 if _counts_packets(device) else device.model.nvlinks
    if not count:
        return None
    if scope == ALL_LINKS:
        return sum(_kib(device, link) for link in range(count))
    return _kib(device, scope) if scope < count else None


def link_bytes(device: Device, link: int) -> int | None:
    has = _counts_packets(device) and link < device.model.nvlinks
    return _kib(device, link) * 1024 if has else None


def link_errors(device: Device, link: int, rate: str) -> int | None:
    """Errors of one link, before NVLink 5; `rate` is the name of the effect's hourly rate."""
    return None if _counts_packets(device) else _accrued(device, link, rate)


def link_recoveries(device: Device, link: int) -> int | None:
    """Recoveries of one link, from NVLink 5 on."""
    return _accrued(device, link, "recovery_per_hour") if _counts_packets(device) else None


def link_failed_recoveries(device: Device, link: int) -> int | None:
    """Failed recoveries, which left the link down."""
    return _accrued(device, link, "recovery_failed_per_hour") if _counts_packets(device) else None


def link_bit_error_rate(device: Device, link: int) -> int | None:
    """A bit error rate in NVML's encoding: mantissa 15 and exponent 255 for none, 3e-11 for a link with recoveries."""
    recoveries = link_recoveries(device, link)
    return None if recoveries is None else 0x30B if recoveries else 0xFFF


def link_symbol_errors(device: Device, link: int) -> int | None:
    """Symbol errors: a million per recovery."""
    recoveries = link_recoveries(device, link)
    return None if recoveries is None else recoveries * 1_000_000


def link_fec_blocks(device: Device, link: int, repaired: int) -> int | None:
    """FEC blocks with `repaired` repaired symbols: most blocks have 0, and each further one is 1000 times rarer."""
    blocks = link_bytes(device, link)
    return None if blocks is None else blocks // 512 // 1000**repaired


def _counts_packets(device: Device) -> bool:
    """Whether the GPU has the counters of NVLink 5, which replace the earlier ones."""
    return device.model.nvlink_version >= _FIRST_WITH_PACKETS


def _accrued(device: Device, link: int, rate: str) -> int | None:
    if link >= device.model.nvlinks:
        return None
    state = device.state
    errors = device.host.timeline.accrued(
        effects.NvlinkErrors, rate, state.index, state.seconds, lambda effect: link in effect.links
    )
    return int(errors)


def _connected(device: Device, link: int) -> bool:
    connected = device.state.gpu.nvlinks_connected
    return not device.model.nvlink_bridge if connected is None else link < connected


def _kib(device: Device, link: int) -> int:
    if not _connected(device, link):
        return 0
    return int(device.state.link_seconds(link) * _BYTES_PER_SECOND / 1024)


def _state(device: Device, link: int, out: int | None) -> None:
    state = link_state(device, link)
    if state is None:
        raise Failure("INVALID_ARGUMENT" if device.model.nvlinks else "NOT_SUPPORTED")
    put(c_uint, out, state)


_VERSIONS: Final = {2: 2, 3: 4, 4: 6, 5: 7}
"""NVML_NVLINK_VERSION_*_0 by the version's number."""


def _version(device: Device, link: int, out: int | None) -> None:
    if link >= device.model.nvlinks:
        raise Failure("INVALID_ARGUMENT" if device.model.nvlinks else "NOT_SUPPORTED")
    put(c_uint, out, _VERSIONS[device.model.nvlink_version])


def _remote_pci_info(device: Device, link: int, out: int | None) -> None:
    """What is at the far end; the driver only reports it for trained links."""
    if link >= device.model.nvlinks or not _connected(device, link):
        raise Failure("INVALID_ARGUMENT" if device.model.nvlinks else "NOT_SUPPORTED")
    info = at(PCI_INFO, out)
    info.domain, info.bus, info.device = _far_end(device, link)
    info.busId = f"{info.domain:08X}:{info.bus:02X}:{info.device:02X}.0".encode()


def _far_end(device: Device, link: int) -> tuple[int, int, int]:
    """Domain, bus and device of an NVSwitch; without switches, links are dealt to the other GPUs in turn."""
    switched = device.model.nvlink_version >= _FIRST_SWITCHED and not device.model.nvlink_bridge
    peers = [peer for peer in device.session.devices if peer.index != device.index and peer.model == device.model]
    if switched or not peers:
        return 0, _FIRST_SWITCH_BUS + link % _SWITCHES, 0
    domain, bus, place = peers[link % len(peers)].state.gpu.slot.bus_id.split(":")
    return int(domain, 16), int(bus, 16), int(place.partition(".")[0], 16)


FUNCTIONS: Final = (
    Function("nvmlDeviceGetNvLinkState", (c_uint, OUT), _state, mig="whole"),
    Function("nvmlDeviceGetNvLinkVersion", (c_uint, OUT), _version, mig="whole"),
    Function("nvmlDeviceGetNvLinkRemotePciInfo_v2", (c_uint, OUT), _remote_pci_info, mig="whole"),
)
