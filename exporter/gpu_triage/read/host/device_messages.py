"""Parse kernel messages about PCIe errors of any device, and about mlx5 adapters.

PCIe errors: drivers/pci/pcie/aer.c. Until Linux 6.7 they are Corrected, Uncorrected (Non-Fatal) and Uncorrected
(Fatal), since 6.8 Correctable and Uncorrectable. A port logs the error message it ``received``; the device's line,
prefixed with its driver, describes the error. Adapters: drivers/net/ethernet/mellanox/mlx5/core/events.c and en_main.c,
drivers/infiniband/hw/mlx5/main.c.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from gpu_triage.driver.kernel.pci_bus import normalize_bus_id
from gpu_triage.read.host.kernel_messages import HostMessage, ProblemKind, ProblemResolved

MARKERS: Final = ("PCIe Bus Error", "AER: ", "aer_", ": [10de:", "  device [10de:", "mlx5_core ")
"""Substrings; a line without any of them is not one of these messages."""

_ADDRESS: Final = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"

BEGINNINGS: Final = (
    rf"(?:pcieport|pci|nvidia|nouveau|mlx5_core) {_ADDRESS}[: ]"
    rf"|[\w-]{{2,24}} {_ADDRESS}: (?:AER: |PCIe Bus |aer_|  device \[10de:)"
)
"""Regular expression for the start of each message, to locate it after the timestamp in a log line."""


class PcieError(NamedTuple):
    """A PCIe error of the device with this address, with a severity of gpu_pcie_aer_errors_total.

    `port` received the error message; "" if the device's own line reports it, which also names the driver.
    """

    address: str
    severity: str
    port: str = ""
    driver: str = ""


_SEVERITY: Final = r"(?:(Corrected|Correctable)|Uncorrected|Uncorrectable)(?: \((Fatal|Non-Fatal)\))?"
_ERROR: Final = re.compile(rf"([\w-]{{2,24}}) ({_ADDRESS}): (?:AER: )?PCIe Bus Error: severity={_SEVERITY}")
_RECEIVED: Final = re.compile(
    rf"[\w-]{{2,24}} ({_ADDRESS}): AER: (?:Multiple )?{_SEVERITY} error (?:message )?received(?: from|:) ({_ADDRESS})"
)
# If the firmware handles errors (APEI), only the registers are logged.
_FROM_FIRMWARE: Final = re.compile(rf"([\w-]{{2,24}}) ({_ADDRESS}): (?:AER: )?aer_(?:(status)|uncor_severity): 0x")
# The same line is logged for switches and a GPU's audio device, which use other drivers.
_NVIDIA_DEVICE: Final = re.compile(
    rf"(?:nvidia|nouveau|NovaCore|vfio-pci|pci) ({_ADDRESS}): (?:AER: )? {{2,3}}device \[10de:"
)

_MLX5: Final = rf"mlx5_core ({_ADDRESS})(?: (\w{{1,32}}))?: (?:\w{{1,60}}:\d{{1,6}}:\(pid \d{{1,10}}\): )?"
_POWER: Final = re.compile(_MLX5 + r"Detected insufficient power on the PCIe slot \((\d{1,5})W\)")
_MODULE: Final = re.compile(_MLX5 + r"Port module event\[error\]: module (\d{1,4}), .{1,40}?, (.{1,120})")
_HEAT: Final = re.compile(_MLX5 + r"High temperature on sensors")
_LINK: Final = re.compile(_MLX5 + r"(?:Port: (\d{1,3}) )?Link (up|ACTIVE|down|DOWN)\b")
_WITHOUT_POWER: Final = ("Power budget exceeded", "insufficient/unadvertised power")


def parse_pcie_error(text: str) -> PcieError | None:
    """Parse the PCIe error in a kernel message; None for any other message.

    >>> parse_pcie_error("nvidia 0000:34:00.0: PCIe Bus Error: severity=Uncorrectable (Fatal), type=Data Link Layer")
    PcieError(address='0000:34:00.0', severity='fatal', port='', driver='nvidia')
    """
    match = _ERROR.match(text)
    if match is not None:
        return PcieError(normalize_bus_id(match[2]), _severity(match[3], match[4]), driver=match[1])
    match = _RECEIVED.match(text)
    if match is not None:
        return PcieError(normalize_bus_id(match[4]), _severity(match[2], match[3]), normalize_bus_id(match[1]))
    match = _FROM_FIRMWARE.match(text)
    if match is not None:
        return PcieError(normalize_bus_id(match[2]), "correctable" if match[3] else "nonfatal", driver=match[1])
    return None


def _severity(correctable: str | None, fatal: str | None) -> str:
    return "correctable" if correctable else "fatal" if fatal == "Fatal" else "nonfatal"


def parse_failing_gpu(text: str) -> str | None:
    """Bus ID of the GPU in the detail lines of a PCIe error; None for any other message."""
    match = _NVIDIA_DEVICE.match(text)
    return None if match is None else normalize_bus_id(match[1])


def parse_device_message(text: str) -> HostMessage | None:
    """Parse a kernel message about a device: a PCIe error, or an adapter problem; None for any other message."""
    if (error := parse_pcie_error(text)) is not None:
        # Ignore the port's line: the device logs the same error itself, unless it no longer can.
        trouble = ProblemKind.PCIE_CORRECTED if error.severity == "correctable" else ProblemKind.PCIE_UNCORRECTED
        return None if error.port else HostMessage(trouble, error.address)
    if not text.startswith("mlx5_core "):
        return None
    if (power := _POWER.match(text)) is not None:
        return HostMessage(ProblemKind.ADAPTER_POWER, power[1])
    if (module := _MODULE.match(text)) is not None:
        lacks_power = any(words in module[4] for words in _WITHOUT_POWER)
        return HostMessage(ProblemKind.ADAPTER_POWER if lacks_power else ProblemKind.ADAPTER_MODULE, module[1])
    if (heat := _HEAT.match(text)) is not None:
        return HostMessage(ProblemKind.ADAPTER_HOT, heat[1])
    link = _LINK.match(text)
    return (
        None if link is None or link[4] in ("up", "ACTIVE") else HostMessage(ProblemKind.ADAPTER_LINK_DOWN, _port(link))
    )


def parse_device_over(text: str) -> ProblemResolved | None:
    """Parse a message that an adapter port's link is up again; None for any other message."""
    link = _LINK.match(text) if text.startswith("mlx5_core ") else None
    return (
        None
        if link is None or link[4] in ("down", "DOWN")
        else ProblemResolved(ProblemKind.ADAPTER_LINK_DOWN, _port(link))
    )


def _port(link: re.Match[str]) -> str:
    """Name of a link: the RDMA port (``mlx5_5 port 1``), the interface name, or the adapter's address."""
    return f"{link[2] or link[1]} port {link[3]}" if link[3] else link[2] or link[1]
