r"""Parse messages of NVIDIA's kernel modules about failures of a GPU or the driver without an Xid.

The driver splits sentences over several lines, each prefixed with ``NVRM:``, at points that vary between branches. The
parsers here take the whole sentence with newlines, as in a record of ``/dev/kmsg``. Sources: nv.c, nv-pci.c, osapi.c,
kernel_gsp.c, linux_nvswitch.c and nvidia-peermem.c of the open kernel modules 515 to 595
(https://github.com/NVIDIA/open-gpu-kernel-modules); the wording of 340 to 510 is from bug reports. Messages of the
resource manager have no colon after ``NVRM`` in 515 to 525.
"""

import re
from typing import Final

from gpu_triage.driver.kernel.pci_bus import normalize_bus_id
from gpu_triage.read.host.kernel_messages import HostMessage, ProblemKind, cut, messages

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
"""Groups are the address or number of a GPU, a detail, or versions, named after what has them."""


def parse_driver_message(text: str) -> HostMessage | None:
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
            detail = detail.replace(" @ 0x", " at 0x") or versions
            bus_id = normalize_bus_id(address if "." in address else f"{address}.0") if address else ""
            gpu = bus_id or (f"GPU {number}" if number else "")
            return HostMessage(trouble, cut(gpu or detail), address=bus_id, detail=detail)
    return None
