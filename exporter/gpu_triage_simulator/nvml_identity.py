"""NVML functions of the library as a whole, and those for a GPU's identity and location."""

from ctypes import c_char_p, c_int, c_uint, c_void_p
from typing import Final

from gpu_triage.read.gpu.topology import CAPABILITIES, LEVELS, P2P_STATUSES
from gpu_triage_simulator.effects import VgpuLicense
from gpu_triage_simulator.host_effects import DriverVersion
from gpu_triage_simulator.nvml_calls import OUT, Function, at, gauge, pair, put, put_text, text
from gpu_triage_simulator.nvml_library import (
    GRID_FEATURES,
    GRID_LICENSE_COMPUTE,
    NOT_VIRTUAL,
    PASSED_THROUGH,
    PCI_INFO,
    VGPU,
    Failure,
)
from gpu_triage_simulator.nvml_session import Device, MigDevice, NvmlSession
from gpu_triage_simulator.sysfs import host_bridge

_BUS_TYPE_PCIE: Final = 2
_TOPOLOGY: Final = {level: number for number, level in LEVELS.items()}
_P2P: Final = {status: number for number, status in P2P_STATUSES.items()}
_NEED_NVLINK: Final = (CAPABILITIES["nvlink"], CAPABILITIES["atomics"])


def _init(session: NvmlSession, _flags: int) -> None:
    session.initialize()


def _shutdown(session: NvmlSession) -> None:
    session.shut_down()


def _installed_version(session: NvmlSession) -> str:
    host = session.host
    installed = [effect.version for event, effect in host.timeline.host(DriverVersion) if event.active(host.seconds())]
    return installed[-1] if installed else host.scenario.driver.version


def _driver_version(session: NvmlSession, out: int | None, length: int) -> None:
    session.require_initialized()
    put_text(out, length, _installed_version(session))


def _nvml_version(session: NvmlSession, out: int | None, length: int) -> None:
    driver = session.host.scenario.driver
    put_text(out, length, f"{driver.cuda.split('.')[0]}.{_installed_version(session)}")


def _cuda_version(session: NvmlSession, out: int | None) -> None:
    major, minor = session.host.scenario.driver.cuda.split(".")
    put(c_int, out, int(major) * 1000 + int(minor) * 10)


def _count(session: NvmlSession, out: int | None) -> None:
    session.require_initialized()
    put(c_uint, out, len(session.devices))


def _handle_by_index(session: NvmlSession, index: int, out: int | None) -> None:
    session.require_initialized()
    if index >= len(session.devices) or not out:
        raise Failure("INVALID_ARGUMENT")
    c_void_p.from_address(out).value = session.hand_out(session.devices[index])


def _handle_by_uuid(session: NvmlSession, uuid: bytes | None, out: int | None) -> None:
    session.require_initialized()
    if uuid is None or not out:
        raise Failure("INVALID_ARGUMENT")
    for device in session.devices:
        if device.state.gpu.uuid.encode() == uuid:
            c_void_p.from_address(out).value = session.hand_out(device)
            return
    raise Failure("NOT_FOUND")


def _pci_info(device: Device, out: int | None) -> None:
    info = at(PCI_INFO, out)
    bus_id = device.state.gpu.slot.bus_id
    domain, bus, rest = bus_id.split(":")
    info.domain, info.bus, info.device = int(domain, 16), int(bus, 16), int(rest.split(".")[0], 16)
    info.pciDeviceId = device.model.pci_device_id
    info.pciSubSystemId = device.model.pci_device_id
    info.busId = f"0000{bus_id}".upper().encode()
    info.busIdLegacy = bus_id.upper().encode()


def _numa_node(device: Device, out: int | None) -> None:
    # Only if the GPU's memory is a NUMA node of the kernel. Numbered as on a GB200 (sgl-project/sglang #11208).
    if "numa_memory" not in device.model.features or device.state.conditions.mig is not None:
        raise Failure("NOT_SUPPORTED")
    put(c_int, out, 2 + 8 * device.state.index)


def _p2p_status(device: Device, other: int | None, capability: int, out: int | None) -> None:
    peer = device.peer(other)
    if capability not in CAPABILITIES.values():
        raise Failure("INVALID_ARGUMENT")
    cut_up = device.state.conditions.mig is not None or peer.state.conditions.mig is not None
    statuses = {device.state.conditions.p2p_status, peer.state.conditions.p2p_status} - {"ok"}
    if peer.index == device.index or cut_up:
        status = "not_supported"
    elif "p2p" not in device.model.features or "p2p" not in peer.model.features:
        status = "chipset_not_supported"
    elif capability == CAPABILITIES["prop"] or (capability in _NEED_NVLINK and not device.model.nvlinks):
        status = "not_supported"
    else:
        status = min(statuses, default="ok")
    put(c_uint, out, _P2P[status])


def _common_ancestor(device: Device, other: int | None, out: int | None) -> None:
    peer = device.peer(other)
    here, there = device.state.conditions.slot, peer.state.conditions.slot
    if peer.index == device.index:
        level = "internal"
    elif here.node != there.node:
        level = "sys"
    elif host_bridge(here) != host_bridge(there):
        level = "node"
    elif here.ports[:1] != there.ports[:1] or not here.ports:
        level = "phb"
    else:
        # A switch consists of two bridges, its upstream and downstream port; siblings share the upstream one.
        level = "pix" if here.ports[:-1] == there.ports[:-1] else "pxb"
    put(c_uint, out, _TOPOLOGY[level])


def _name(device: Device) -> str:
    name = device.model.name
    return f"{name} MIG {device.instance.profile}" if isinstance(device, MigDevice) else name


def _board_part_number(device: Device) -> str:
    if device.model.board_part_number is None:
        raise Failure("NOT_SUPPORTED")
    return device.model.board_part_number


def _minor_number(device: Device) -> int:
    # The device file keeps its number even if NVML's indices change.
    minor = device.state.gpu.minor_number
    return device.state.index if minor is None else minor


def _license(device: Device) -> VgpuLicense | None:
    return device.host.timeline.latest(VgpuLicense, device.state.index, device.state.seconds)


def _virtualization_mode(device: Device, out: int | None) -> None:
    whole = PASSED_THROUGH if device.host.scenario.machine.virtual else NOT_VIRTUAL
    put(c_int, out, whole if _license(device) is None else VGPU)


def _licensable_features(device: Device, out: int | None) -> None:
    features, vgpu = at(GRID_FEATURES, out), _license(device)
    features.isGridLicenseSupported = int(vgpu is not None)
    features.licensableFeaturesCount = int(vgpu is not None)
    if vgpu is not None:
        feature = features.gridLicensableFeatures[0]
        feature.featureCode, feature.featureEnabled = GRID_LICENSE_COMPUTE, 1
        feature.featureState = int(vgpu.licensed)
        feature.productName = vgpu.product.encode()


FUNCTIONS: Final = (
    Function("nvmlInitWithFlags", (c_uint,), _init, on="library"),
    Function("nvmlShutdown", (), _shutdown, on="library"),
    Function("nvmlSystemGetDriverVersion", (OUT, c_uint), _driver_version, on="library"),
    Function("nvmlSystemGetNVMLVersion", (OUT, c_uint), _nvml_version, on="library"),
    Function("nvmlSystemGetCudaDriverVersion_v2", (OUT,), _cuda_version, on="library"),
    Function("nvmlDeviceGetCount_v2", (OUT,), _count, on="library"),
    Function("nvmlDeviceGetHandleByIndex_v2", (c_uint, OUT), _handle_by_index, on="handle"),
    Function("nvmlDeviceGetHandleByUUID", (c_char_p, OUT), _handle_by_uuid, on="handle"),
    Function("nvmlDeviceGetPciInfo_v3", (OUT,), _pci_info),
    Function("nvmlDeviceGetNumaNodeId", (OUT,), _numa_node, since=530),
    Function("nvmlDeviceGetP2PStatus", (c_void_p, c_uint, OUT), _p2p_status),
    Function("nvmlDeviceGetTopologyCommonAncestor", (c_void_p, OUT), _common_ancestor),
    text("nvmlDeviceGetName", _name, mig="any"),
    text("nvmlDeviceGetUUID", lambda device: device.uuid, mig="any"),
    text("nvmlDeviceGetSerial", lambda device: device.state.gpu.serial, feature="serial"),
    text("nvmlDeviceGetVbiosVersion", lambda device: device.state.conditions.vbios_version),
    text("nvmlDeviceGetBoardPartNumber", _board_part_number),
    gauge("nvmlDeviceGetArchitecture", lambda device: device.model.architecture),
    gauge("nvmlDeviceGetIndex", lambda device: device.index),
    gauge("nvmlDeviceGetMinorNumber", _minor_number),
    gauge("nvmlDeviceGetPersistenceMode", lambda device: int(device.state.conditions.persistence_mode)),
    gauge("nvmlDeviceGetComputeMode", lambda _device: 0),
    gauge("nvmlDeviceGetBusType", lambda _device: _BUS_TYPE_PCIE),
    pair("nvmlDeviceGetCudaComputeCapability", lambda device: device.model.compute_capability, c_int),
    Function("nvmlDeviceGetVirtualizationMode", (OUT,), _virtualization_mode),
    Function("nvmlDeviceGetGridLicensableFeatures_v4", (OUT,), _licensable_features, since=510),
)
