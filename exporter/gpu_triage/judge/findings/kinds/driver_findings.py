"""Driver and number of GPUs, without which nothing else can be judged."""

from typing import Final

from gpu_triage.judge.findings.check import Action, Area, Measure, Unit, rows_of

_critical, _warning, _info = rows_of(Area.DRIVER)

DRIVER: Final = (
    _critical("driver.unavailable", Action.FIX_HOST, "GpuDriverUnavailable", wait="5m", hold="5m", of_host=True)(
        title="the NVIDIA driver does not answer",
        meaning="The NVIDIA driver does not answer: no new job can start on this host, and running ones may have "
        "failed.",
        decision="Read the kernel log and the module's state (lsmod, dkms status), then repair or reload the driver. "
        "Reboot if it is stalled.",
    ),
    # No wait: the module responds only after probing all GPUs, so a low count rises only while a host starts.
    _critical("gpu.missing", Action.DRAIN, "GpuMissing", topic="missing", hold="5m", of_host=True)(
        title="the driver shows fewer GPUs than the host has",
        meaning="The driver shows fewer GPUs than the host should have.",
        decision="{Drain} the host, and find the missing GPU: check kernel log, power, seating and firmware settings.",
        measure=Measure(Unit.COUNT, "{} missing"),
    ),
    # Held longer than the findings about its GPUs, so that none of those pages when a power cycle ends all of them.
    _critical("gpu.board_lost", Action.DRAIN, "GpuBoardLost", topic="sick", hold="10m", of_host=True)(
        title="several GPUs are lost",
        meaning="Several GPUs of this host no longer answer: more likely than that each of them failed is a fault of "
        "what they share, such as the board, a PCIe switch or a power supply.",
        decision="{Drain} the host, save its kernel log and the BMC's event log, power-cycle it, and inspect what the "
        "GPUs share before you replace one.",
        measure=Measure(Unit.COUNT, "{} of them"),
    ),
    _critical("gpu.lost", Action.DRAIN, "GpuLost", topic="sick", hold="7m")(
        title="does not answer",
        meaning="The GPU no longer answers: jobs on it have died or hang.",
        decision="{Drain} it and save the kernel log; reset it or power-cycle the host, then inspect the hardware.",
    ),
    _warning("gpu.slow", Action.INSPECT_HARDWARE, topic="ecc", page="GpuEccCorrectedRising")(
        title="answers slowly while it corrects a flood of memory errors",
        meaning="The GPU corrects so many memory errors that the driver answers late: it is slow, and not lost.",
        decision="Let its job reach a checkpoint and end, then have the board replaced.",
        measure=Measure(Unit.COUNT, "{} corrected error(s) a second"),
    ),
    _warning("gpu.blocked", Action.NONE, topic="driver", page="GpuLost", hold="1m")(
        title="cannot be read while another GPU blocks the driver",
        meaning="The call to another GPU hung first and holds a lock of the driver. Nothing is known against this one.",
        decision="Deal with the GPU that is named; jobs on this one may go on.",
    ),
    _info("gpu.released", Action.NONE, "GpuReleased", topic="released", wait="1h", hold="0s", of_host=True)(
        title="the exporter has released the GPUs and monitors none",
        meaning="The exporter was told to release the GPUs, so that one can be reset: it monitors none.",
        decision="Send it SIGUSR2, or POST /-/acquire, when the work on them is done.",
    ),
    _info("driver.module_missing", Action.FIX_HOST, page="GpuDriverUnavailable", wait="5m", of_host=True)(
        title="the kernel module nvidia_uvm is not loaded",
        meaning="CUDA needs the kernel module nvidia_uvm, and it is not loaded.",
        decision="Unless nvidia-modprobe loads it with the first job, load it at boot.",
    ),
    _warning("driver.no_access", Action.FIX_HOST, page="GpuDriverUnavailable", of_host=True)(
        title="a container or virtual machine has no access to the GPUs",
        meaning="What asked for the GPUs has no access to them; nothing is known against the GPUs.",
        decision="Run nvidia-smi on the host: if it works there, give the container or machine its devices again.",
    ),
    _critical("driver.version_mismatch", Action.FIX_HOST, page="GpuDriverUnavailable", hold="5m", of_host=True)(
        title="driver library and kernel module differ in version",
        meaning="The driver's libraries and the loaded kernel module are of different versions: no program can use a "
        "GPU.",
        decision="Reload the kernel module or reboot; keep the driver's packages at one version.",
    ),
    _warning("driver.module_rejected", Action.FIX_HOST, page="GpuDriverUnavailable", of_host=True)(
        title="the kernel rejects an unsigned module",
        meaning="With Secure Boot (lockdown), the kernel loads no module without a signature by a key that it trusts. "
        "If NVIDIA's is not signed, the host has no driver.",
        decision="Sign the modules with an enrolled key (mokutil --import), install the distribution's signed ones, or "
        "switch off Secure Boot.",
    ),
    _critical("driver.nouveau", Action.FIX_HOST, page="GpuDriverUnavailable", hold="5m")(
        title="held by the driver nouveau",
        meaning="The kernel's own driver nouveau holds the GPU, so NVIDIA's driver cannot.",
        decision="Blacklist nouveau, rebuild the initramfs, and reboot.",
    ),
    _critical("driver.bound_elsewhere", Action.FIX_HOST, page="GpuDriverUnavailable", hold="5m")(
        title="held by another kernel driver",
        meaning="Another kernel driver, such as nova_core of Linux 7, holds the GPU, so NVIDIA's driver cannot use it.",
        decision="Blacklist that driver, rebuild the initramfs, and reboot.",
    ),
    _info("driver.not_probed", Action.FIX_HOST, page="GpuMissing", of_host=True)(
        title="another driver held GPUs when the NVIDIA driver was loaded",
        meaning="When the NVIDIA driver was loaded, another kernel driver held a GPU: the NVIDIA driver left it alone.",
        decision="Nothing, if a virtual machine has that GPU (lspci -k shows vfio-pci); else unload the other driver.",
    ),
    _warning("driver.unsupported", Action.FIX_HOST, page="GpuMissing", hold="5m")(
        title="not supported by the installed driver",
        meaning="The installed driver does not support this GPU.",
        decision="Install the driver that the kernel log asks for: the open kernel modules, or an older branch.",
    ),
    _critical("driver.bar", Action.FIX_HOST, page="GpuMissing", hold="5m")(
        title="the firmware gave it no address range",
        meaning="The firmware gave the GPU no address range for its memory, so the driver cannot use it.",
        decision="Enable Above 4G Decoding (and Resizable BAR) in the firmware setup, or boot with pci=realloc.",
    ),
    _critical("driver.power_cables", Action.INSPECT_HARDWARE, topic="missing", page="GpuMissing", hold="5m")(
        title="its power cables are not connected",
        meaning="The driver cannot start the GPU: its auxiliary power is missing.",
        decision="Power the host off, and connect all power cables of the GPU.",
    ),
    _critical("driver.init_failed", Action.INSPECT_HARDWARE, topic="missing", page="GpuMissing", hold="5m")(
        title="the driver cannot initialize it",
        meaning="The driver found the GPU and could not initialize it: nothing can run on it.",
        decision="Power-cycle the host; if it fails again, try another driver version, then check seating and power.",
    ),
    _info("driver.earlier", Action.NONE, page="GpuDriverUnavailable", of_host=True)(
        title="the driver failed earlier",
        meaning="The driver failed earlier and has worked since: it was loaded again, or its GPUs answer.",
        decision="Nothing, unless it keeps happening; then read the kernel log of that time.",
    ),
    _warning("host.kernel_log_lost", Action.FIX_HOST, topic="kernel_log", page="GpuExporterXidDeaf", of_host=True)(
        title="the kernel log overran, Xids may be missing",
        meaning="Something floods the kernel log: messages were overwritten before they could be read, Xids perhaps "
        "too.",
        decision="Find what writes so much (dmesg | tail), and stop it; a larger log (log_buf_len=16M) helps "
        "meanwhile.",
        measure=Measure(Unit.COUNT, "{} record(s) lost within a minute"),
    ),
)
