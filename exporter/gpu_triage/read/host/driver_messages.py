r"""Parse messages of NVIDIA's kernel modules about failures of a GPU or the driver without an Xid.

The driver splits sentences over several lines, each prefixed with ``NVRM:``, at points that vary between branches. The
parsers here take the whole sentence with newlines, as in a record of ``/dev/kmsg``. Sources: nv.c, nv-pci.c, osapi.c,
kernel_gsp.c, linux_nvswitch.c and nvidia-peermem.c of the open kernel modules 515 to 595
(https://github.com/NVIDIA/open-gpu-kernel-modules); the wording of 340 to 510 is from bug reports. Messages of the
resource manager have no colon after ``NVRM`` in 515 to 525.

PCIe errors of any device: drivers/pci/pcie/aer.c. Until Linux 6.7 they are Corrected, Uncorrected (Non-Fatal) and
Uncorrected (Fatal), since 6.8 Correctable and Uncorrectable. A port logs the error message it ``received``; the
device's line, prefixed with its driver, describes the error. Messages of mlx5 adapters:
drivers/net/ethernet/mellanox/mlx5/core/events.c and en_main.c, drivers/infiniband/hw/mlx5/main.c.
"""

import re
from typing import Final, NamedTuple

from gpu_triage.driver.kernel.pci_bus import normalize_bus_id
from gpu_triage.read.host.kernel_messages import HostMessage, ProblemKind, ProblemResolved, cut, messages

MARKERS: Final = (
    *("NVRM", "nvidia-nvswitch", "nvidia-nvlink", "nvidia-peermem"),
    *("unsigned module", "oading of ", "could not insert ", "Failed to insert module ", "module load error: "),
)
"""Substrings; a line without any of them is not one of these messages."""

OF_LOADERS: Final = (
    r"(?:(?:modprobe|insmod): )?(?:ERROR|FATAL): could not insert |Failed to insert module |Kernel module load error: "
)
"""Beginning of what programs that load modules print about the kernel's refusal."""
_UNSIGNED: Final = r"oading of (?:unsigned modules?|module with \w{1,20} \w{1,20})"

BEGINNINGS: Final = (
    r"NVRM: |NVRM (?=\w{3,80}: )(?!version: )|nvidia-nvswitch\d*: |nvidia-nvlink: |nvidia-peermem "
    rf"|Lockdown: |(?:nvidia[\w-]{{0,20}}: l|(?:module: )?L){_UNSIGNED}|{OF_LOADERS}"
)
"""Regular expression for the start of each message, to locate it after the timestamp in a log line."""

_BEGINNING: Final = re.compile(BEGINNINGS)
SENTENCES: Final = ("NVRM: API mismatch:", "NVRM: The NVIDIA ", "NVRM: This PCI I/O region ")
"""Prefixes of messages that continue over several lines until a period."""

LOADING_SECONDS: Final = 60.0
"""Maximum time to load the driver, from the first GPU probed to the message that it is loaded."""


class DriverMessage(NamedTuple):
    """One parsed message; "" for what it does not contain.

    The number is the driver's, not always the GPU's index; the detail is versions, a code, a count or a driver.
    """

    trouble: ProblemKind
    address: str = ""
    number: str = ""
    detail: str = ""

    @property
    def subject(self) -> str:
        """What the message is about, in a few words; "" if the message does not name it."""
        gpu = self.address or (f"GPU {self.number}" if self.number else "")
        return cut(gpu or self.detail)


_ADDRESS: Final = r"(?P<address>[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?)"
_VERSION: Final = r"[0-9]{1,4}(?:\.[0-9]{1,4}){1,3}"
_NUMBER: Final = r"(?:GPU(?P<number>\d{1,3}) )?"
_IN_FUNCTION: Final = rf"(?:GPU {_ADDRESS}: )?{_NUMBER}(?:\w{{1,80}}: )?"
_GSP_FAILURES: Final = (
    r"(?:Cannot initialize GSP firmware RM|need firmware to initialize GSP|Failed to boot GSP\.)$"
    r"|missing NVDEC0 engine, cannot initialize GSP-RM$|Max GSP-RM boot attempts exceeded: \d"
    r"|unexpected WPR2 already up, cannot proceed with booting (?:GSP|gsp)$"
    r"|(?:cannot bootstrap riscv/gsp|GSP-FMC reported an error while attempting to boot GSP): 0x"
    r"|failed to (?:extract VBIOS image from ROM|allocate (?:Booter (?:Load|Reload|Unload)|Scrubber) ucode): 0x"
    r"|failed to (?:wait for GFW boot complete|parse FWSEC ucode from VBIOS image(?: \(VBIOS version \S{1,40}\))?): 0x"
    r"|Error (?:preparing (?:boot binary|GSP-RM) image|calculating FB layout)$"
    r"|(?:SET_GUEST_SYSTEM_INFO|GET_GSP_STATIC_INFO|kgspSendInitRpcs) failed:? 0x"
    r"|failed to execute Booter Load(?: \(ucode for initial boot\))?: 0x"
)
"""Errors that end the start of the GSP, of kgspInitRm_IMPL, what it calls, and RmInitAdapter (osinit.c). Others of the
same functions inform, or are of a reset or of unloading the driver."""
_IN_SLOT: Final = rf"{_ADDRESS}:? (?:\(PCI ID: .{{9}}\) )?installed in"

_MESSAGES: Final = messages(
    {
        ProblemKind.GPU_INIT_FAILED: rf"NVRM: (?:GPU {_ADDRESS}: )?"
        rf"RmInitAdapter failed! \((?P<detail>[0-9a-fx:]{{1,40}})\)",
        ProblemKind.DRIVER_MISMATCH: (
            (
                r"NVRM: API mismatch: the client (?:'.{0,64}' \(pid \d{1,10}\) )?"
                rf"(?:has the )?version (?P<client>{_VERSION})"
                rf"(?:,? but this kernel module (?:has the )?version (?P<kernel_module>{_VERSION}))?"
            ),
            rf"NVRM: (?:but )?this kernel module (?:has the )?version (?P<kernel_module>{_VERSION})",
        ),
        ProblemKind.GPU_LOST_AT_PROBE: rf"NVRM: The NVIDIA GPU {_IN_SLOT} .{{0,40}}fallen off the bus",
        ProblemKind.GPU_UNSUPPORTED: rf"NVRM: The NVIDIA (?:.{{0,60}} )?GPU (?:{_IN_SLOT}|installed in) "
        r"this (?:vGPU host )?system "
        r"(?P<detail>(?:is not supported by|is supported through|requires use of) .{3,80}?)(?:\. | because|\.?$)",
        ProblemKind.GPU_BOUND_ELSEWHERE: rf"NVRM: GPU {_ADDRESS} is already bound to (?P<detail>\S{{1,32}}?)\.?$",
        ProblemKind.GPU_NOT_PROBED: r"NVRM: The NVIDIA probe routine was not called for (?P<detail>\d{1,4}) device",
        ProblemKind.GPU_PROBE_FAILED: (
            r"NVRM: The NVIDIA probe routine failed for (?P<detail>\d{1,4}) device",
            # All of the devices that were probed failed.
            r"NVRM: None of the NVIDIA (?:graphics adapters|devices) were initialized",
            rf"NVRM: {_IN_FUNCTION}rm_init_adapter failed(?:, device minor| for device bearing)",
            rf"NVRM: {_IN_FUNCTION}rm_init_adapter\(\d{{1,3}}\) failed",
            rf"NVRM: {_IN_FUNCTION}\*{{3}} Cannot (?:attach gpu|initialize the device)$",
            rf"NVRM: {_IN_FUNCTION}\w{{4,40}}(?:\(\))? failed, bailing out of RmInitAdapter",
        ),
        ProblemKind.DRIVER_NOT_LOADED: r"NVRM: No NVIDIA (?:devices|graphics adapter) probed",
        ProblemKind.GPU_BAR: r"NVRM: (?:This PCI I/O region assigned to your NVIDIA device is invalid: )?(?P<detail>"
        r"BAR\d is \w{1,12} @ 0x[0-9a-fA-F]{1,16}(?= \()|Fatal Error while attempting to resize PCIe BARs)"
        rf"(?: \(PCI:{_ADDRESS}\)|\.?$)",
        ProblemKind.GPU_UNPOWERED: rf"NVRM: (?:GPU {_ADDRESS}: )?GPU does not have the necessary power cables",
        # Of nv_pci_probe (nv-pci.c) and nv_start_device (nv.c), each before the device is given up.
        ProblemKind.GPU_NOT_STARTED: rf"NVRM: (?:GPU {_ADDRESS}: )?(?P<detail>No interrupts of any type are available|"
        r"Can't find an IRQ|(?:pci_enable_device|request_mem_region) failed|failed to wait for bar firewall)",
        ProblemKind.GSP_TIMEOUT: rf"NVRM: {_IN_FUNCTION}(?:(?:GSP RM h|LibOS h|H)eartbeat timed out"
        r"|\*{4,80} GSP Timeout \*{4,80}|={4,40} GSP(?: core|-RM) unresponsive ={4,40}|rpcRecvPoll timedout for fn)",
        ProblemKind.GSP_INIT_FAILED: rf"NVRM: {_IN_FUNCTION}(?:{_GSP_FAILURES})",
        ProblemKind.INFOROM_CORRUPTED: rf"(?i)NVRM: (?:GPU {_ADDRESS}: |{_NUMBER})"
        r".{0,100}\binfo ?rom\b.{0,60}(?:corrupt|invalid)",
        ProblemKind.SWITCH_MISMATCH: r"nvidia-nv(?:switch\d{0,3}|link): (?:\w{1,60}: )?[Vv]ersion mismatch, "
        rf"kernel version (?P<kernel_module>{_VERSION}) user version (?P<program>{_VERSION})",
        ProblemKind.MODULE_REJECTED: (
            rf"Lockdown: (?:.{{1,16}}: )?(?P<detail>unsigned module loading|L{_UNSIGNED}) is restricted;",
            rf"(?:nvidia[\w-]{{0,20}}: |module: )?(?P<detail>[lL]{_UNSIGNED}) is rejected$",
            (
                rf"(?:{OF_LOADERS})(?:(?:module )?'?[\w./-]{{0,120}}?\bnvidia[\w-]{{0,20}}(?:\.ko)?"
                r"(?:\.\w{2,4})?'?: )?(?P<detail>Key was rejected by service|Required key not available)"
            ),
        ),
        ProblemKind.PEERMEM_ERROR: r"nvidia-peermem \w{1,60}:\d{1,6} ERROR (?P<detail>.{1,200})",
    }
)
"""Groups are what a DriverMessage has, or versions, named after what has them."""


def parse_driver_message(text: str) -> DriverMessage | None:
    """Parse a failure message of NVIDIA's modules; None for any other message, including Xids and SXids."""
    if _BEGINNING.match(text) is None:
        return None
    sentence = " ".join(line.removeprefix("NVRM").removeprefix(":").strip() for line in text.split("\n"))
    if text.startswith("NVRM"):
        sentence = f"NVRM: {sentence}"
    for trouble, pattern in _MESSAGES:
        match = pattern.match(sentence)
        if match is not None:
            said = {name: text for name, text in match.groupdict().items() if text is not None}
            address, number, detail = (said.pop(name, "") for name in ("address", "number", "detail"))
            versions = ", ".join(f"{name.replace('_', ' ')} {version}" for name, version in said.items())
            bus_id = normalize_bus_id(address if "." in address else f"{address}.0") if address else ""
            return DriverMessage(trouble, bus_id, number, detail.replace(" @ 0x", " at 0x") or versions)
    return None


DEVICE_MARKERS: Final = (
    *("PCIe Bus Error", "AER: ", "aer_", ": [10de:", "  device [10de:", "mlx5_core ", "pciehp: Slot("),
    *("AMD-Vi: Event logged", "DMAR:", "arm-smmu-v3 ", "change power state", "ms after ", ": enabling device ("),
)
"""Substrings; a line without any of them is not one of these messages."""

_DEVICE: Final = r"[0-9a-fA-F]{4,8}:[0-9a-fA-F]{2}:[0-9a-fA-F]{2}\.[0-7]"

DEVICE_BEGINNINGS: Final = (
    rf"(?:pcieport|pci|nvidia|nouveau|mlx5_core) {_DEVICE}[: ]"
    rf"|[\w-]{{2,24}} {_DEVICE}: (?:AER: |PCIe Bus |aer_|  device \[10de:|AMD-Vi: |(?:not )?ready |.{{5,10}} change )"
    rf"|[\w-]{{2,24}} {_DEVICE}: enabling device "
    r"|AMD-Vi: Event |(?:dmar: )?DMAR: ?\[|arm-smmu-v3 "
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
_ERROR: Final = re.compile(rf"([\w-]{{2,24}}) ({_DEVICE}): (?:AER: )?PCIe Bus Error: severity={_SEVERITY}")
_RECEIVED: Final = re.compile(
    rf"[\w-]{{2,24}} ({_DEVICE}): AER: (?:Multiple )?{_SEVERITY} error (?:message )?received(?: from|:) ({_DEVICE})"
)
# If the firmware handles errors (APEI), only the registers are logged.
_FROM_FIRMWARE: Final = re.compile(rf"([\w-]{{2,24}}) ({_DEVICE}): (?:AER: )?aer_(?:(status)|uncor_severity): 0x")
# The same line is logged for switches and a GPU's audio device, which use other drivers.
_NVIDIA_DEVICE: Final = re.compile(
    rf"(?:nvidia|nouveau|NovaCore|vfio-pci|pci) ({_DEVICE}): (?:AER: )? {{2,3}}device \[10de:"
)

# drivers/pci/hotplug/pciehp_ctrl.c: the link of a slot is gone; "ignored" and "Link Up" are not.
_LINK_LOST: Final = re.compile(rf"pcieport ({_DEVICE}): pciehp: Slot\([^)]{{1,40}}\): (?:Link Down|Card not present)$")

# Docks and other devices that were unplugged have the same messages, with other drivers.
_GPUS_DRIVER: Final = rf"(?:nvidia|nouveau|NovaCore|vfio-pci|pci) ({_DEVICE}): "
_SHORT: Final = r"((?:[0-9a-f]{4}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7])"
_MLX5: Final = rf"mlx5_core ({_DEVICE})(?: (\w{{1,32}}))?: (?:\w{{1,60}}:\d{{1,6}}:\(pid \d{{1,10}}\): )?"
_MODULE: Final = _MLX5 + r"Port module event\[error\]: module \d{1,4}, .{1,40}?, "
_OF_DEVICES: Final = messages(
    {
        # drivers/pci/pci.c; until 5.18 "can't"
        ProblemKind.DEVICE_INACCESSIBLE: (
            _GPUS_DRIVER
            + r"(?:(?:Unable to|can't) change power state from .{4,20}(?:, device| \(config space) inaccessible"
            r"|[Rr]efused to change power state(?:, currently in D3| from D3(?:hot|cold) to D0)"
            r"|not ready \d{1,7}ms after .{1,40}; giving up)"
        ),
        ProblemKind.IOMMU_FAULT: (
            # drivers/iommu/amd/iommu.c, intel/dmar.c, arm/arm-smmu-v3/arm-smmu-v3.c
            rf"[\w-]{{2,24}} ({_DEVICE}): AMD-Vi: Event logged \[[A-Z_]{{4,40}} ",
            rf"AMD-Vi: Event logged \[[A-Z_]{{4,40}} device={_SHORT}\b",
            rf"arm-smmu-v3 \S{{1,40}}: event: [CF]_[A-Z_]{{3,40}} client: {_SHORT}\b",
            rf"(?:dmar: )?DMAR: ?\[(?:DMA (?:Read|Write)|INTR-REMAP)[^\]]{{0,30}}\] Request device \[{_SHORT}\b",
        ),
        ProblemKind.ADAPTER_POWER: (
            _MLX5 + r"Detected insufficient power on the PCIe slot \(\d{1,5}W\)",
            _MODULE + ".{0,110}(?:Power budget exceeded|insufficient/unadvertised power)",
        ),
        ProblemKind.ADAPTER_MODULE: _MODULE,
        ProblemKind.ADAPTER_HOT: _MLX5 + r"High temperature on sensors",
    }
)
_OVER_OF_DEVICES: Final = messages(
    {
        # The kernel logs the second one only if it could read the device's registers (drivers/pci/setup-res.c).
        ProblemKind.DEVICE_INACCESSIBLE: _GPUS_DRIVER + r"(?:ready \d{1,7}ms after |enabling device \()",
        # drivers/pci/pcie/err.c; drivers/pci/hotplug/pciehp_ctrl.c
        ProblemKind.PCIE_DPC: rf"pcieport ({_DEVICE}): "
        r"(?:AER: [Dd]evice recovery successful|pciehp: Slot\([^)]{1,40}\): Link Up)$",
        # drivers/net/ethernet/mellanox/mlx5/core/events.c
        ProblemKind.ADAPTER_POWER: _MLX5 + r"PCIe slot advertised sufficient power",
        ProblemKind.ADAPTER_MODULE: _MLX5 + r"Port module event: module \d",
    }
)

_LINK: Final = re.compile(_MLX5 + r"(?:Port: (\d{1,3}) )?Link (up|ACTIVE|down|DOWN)\b")


def parse_pcie_error(text: str) -> PcieError | None:
    """Parse the PCIe error in a kernel message; None for any other message."""
    if (match := _ERROR.match(text)) is not None:
        return PcieError(normalize_bus_id(match[2]), _severity(match[3], match[4]), driver=match[1])
    if (match := _RECEIVED.match(text)) is not None:
        return PcieError(normalize_bus_id(match[4]), _severity(match[2], match[3]), normalize_bus_id(match[1]))
    if (match := _FROM_FIRMWARE.match(text)) is not None:
        return PcieError(normalize_bus_id(match[2]), "correctable" if match[3] else "nonfatal", driver=match[1])
    return None


def parse_link_lost(text: str) -> str | None:
    """Bus ID of a port with a link that went down, so that what is below it is gone; None for any other message."""
    match = _LINK_LOST.match(text)
    return None if match is None else normalize_bus_id(match[1])


def _bus_id(address: str) -> str:
    return normalize_bus_id(address if address.count(":") > 1 else f"0000:{address}")


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
    for trouble, pattern in _OF_DEVICES:
        if (match := pattern.match(text)) is not None:
            return HostMessage(trouble, _bus_id(match[1]))
    link = _LINK.match(text)
    is_down = link is not None and link[4] in ("down", "DOWN")
    return HostMessage(ProblemKind.ADAPTER_LINK_DOWN, _port(link)) if link is not None and is_down else None


def parse_device_over(text: str) -> ProblemResolved | None:
    """Parse a message that a device, port or link works again; None for any other message."""
    for trouble, pattern in _OVER_OF_DEVICES:
        if (match := pattern.match(text)) is not None:
            return ProblemResolved(trouble, _bus_id(match[1]))
    link = _LINK.match(text)
    is_up = link is not None and link[4] in ("up", "ACTIVE")
    return ProblemResolved(ProblemKind.ADAPTER_LINK_DOWN, _port(link)) if link is not None and is_up else None


def _port(link: re.Match[str]) -> str:
    """Name of a link: the RDMA port (``mlx5_5 port 1``), the interface name, or the adapter's address."""
    return f"{link[2] or link[1]} port {link[3]}" if link[3] else link[2] or link[1]
