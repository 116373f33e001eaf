"""The host around the GPUs: its hardware, storage, CPUs, memory and network, and the limits of jobs."""

from typing import Final

from gpu_triage.judge.findings.check import Action, Area, Measure, Unit, rows_of

_critical, _warning, _info = rows_of(Area.HOST, of_host=True)
_WAITING: Final = Measure(Unit.COUNT, "{} GPU(s)")

HOST: Final = (
    _warning("pcie.dpc", Action.INSPECT_HARDWARE, topic="pcie_link", page="GpuPcieAerErrors")(
        title="a PCIe port shut down its link",
        meaning="A PCIe port shut down its link after an uncorrectable error: the device behind it is gone, or was.",
        decision="See what is behind the port (lspci -tv); check riser, seating and cables.",
        measure=Measure(Unit.COUNT, "{} port(s)"),
    ),
    _warning("pcie.inaccessible", Action.INSPECT_HARDWARE, topic="pcie_link", page="GpuPcieAerErrors")(
        title="a GPU or a device passed through does not come back",
        meaning="A device did not answer after a reset, or when it was to wake up (D3cold, resume): until the host is "
        "power-cycled, nobody can use it.",
        decision="Power-cycle the host; if it happens again, keep the device awake (pcie_port_pm=off, vfio-pci "
        "disable_idle_d3=1), then check slot and power.",
        measure=Measure(Unit.COUNT, "{} device(s)"),
    ),
    _warning("host.iommu_fault", Action.FIX_HOST, page="GpuP2pUnavailable")(
        title="the IOMMU stopped accesses of a device",
        meaning="The IOMMU (AMD-Vi, DMAR) refused accesses to memory by a device: P2P between GPUs or RDMA through it "
        "fails or returns wrong data.",
        decision="For P2P, boot with iommu=pt or switch the IOMMU and ACS off; otherwise update the device's driver.",
        measure=Measure(Unit.COUNT, "{} device(s)"),
    ),
    _warning("host.kernel_fault", Action.FIX_HOST, topic="lockup", page="GpuHostCpuLockup")(
        title="the kernel crashed in a thread, or disabled an interrupt",
        meaning="A thread of the kernel crashed (Oops) and keeps its locks, or an interrupt that no driver took was "
        "disabled: drivers may fail or hang next.",
        decision="Save the kernel log and reboot; if the driver's module is in the call trace or handles the interrupt "
        "(/proc/interrupts), try another version of it.",
        measure=Measure(Unit.COUNT, "{} in all"),
    ),
    _warning("host.hardware_error", Action.INSPECT_HARDWARE, "GpuHostHardwareError", topic="hardware")(
        title="uncorrected hardware error",
        meaning="The CPU, its memory or the firmware reported a hardware error that could not be corrected.",
        decision="When its jobs end, find the part (rasdaemon, the BMC's event log), and replace it.",
        measure=Measure(Unit.COUNT, "{} error(s)"),
    ),
    _info("host.memory_errors", Action.INSPECT_HARDWARE, topic="hardware", page="GpuHostMemoryErrorsRising", wait="1h")(
        title="corrected errors of the host's memory",
        meaning="ECC has just corrected errors of a DIMM of the host: harmless alone, a warning sign if they keep "
        "coming.",
        decision="Watch the daily count, and replace the DIMM if it goes on.",
        measure=Measure(Unit.COUNT, "{} just now"),
    ),
    _warning(
        "host.memory_errors_rising", Action.INSPECT_HARDWARE, "GpuHostMemoryErrorsRising", topic="hardware", wait="1h"
    )(
        title="many corrected errors of the host's memory",
        meaning="ECC corrected more errors of the host's memory within a day than healthy DIMMs have.",
        decision="Find the DIMM (gpu_host_edac_dimm_errors_total, ras-mc-ctl --errors), and replace it.",
        measure=Measure(Unit.COUNT, "{} in a day"),
    ),
    _warning("host.lockup", Action.FIX_HOST, "GpuHostCpuLockup", topic="lockup")(
        title="locked up in the kernel",
        meaning="A CPU did nothing but run one piece of kernel code for 20 seconds or more: everything on it stood "
        "still.",
        decision="Read the call trace in the kernel log; on a virtual machine look for stolen CPU time first.",
        measure=Measure(Unit.COUNT, "{} CPU(s)"),
    ),
    _warning("host.hung_task", Action.FIX_HOST, "GpuHostTaskHung", topic="hung_task")(
        title="stuck in the kernel",
        meaning="Tasks hang in the kernel for minutes: most often the storage they wait for does not answer.",
        decision="Read their stacks in the kernel log, and check the storage or the driver that stands in them.",
        measure=Measure(Unit.COUNT, "{} task(s)"),
    ),
    _critical("storage.read_only", Action.FIX_HOST, "GpuHostFilesystemReadOnly", hold="5m")(
        title="a filesystem went read-only",
        meaning="A filesystem went read-only, or shut down, after an error: jobs can write neither checkpoints nor "
        "logs.",
        decision="Start no new job here; check the disk under it (nvme smart-log, smartctl), then repair the "
        "filesystem.",
        measure=Measure(Unit.COUNT, "{} filesystem(s)"),
    ),
    _warning("storage.nvme", Action.INSPECT_HARDWARE, "GpuHostNvmeFailing")(
        title="an NVMe drive stopped answering",
        meaning="An NVMe drive stopped answering, and the kernel reset it or gave it up.",
        decision="Save what is on it, check its log (nvme smart-log, nvme error-log) and firmware, and replace it.",
        measure=Measure(Unit.COUNT, "{} drive(s)"),
    ),
    _info("storage.nvme_timeout", Action.INSPECT_HARDWARE, page="GpuHostNvmeFailing")(
        title="commands to an NVMe drive timed out",
        meaning="Commands to an NVMe drive timed out; it may be overloaded or starting to fail.",
        decision="Watch for resets of it; check its temperature, firmware and power saving settings.",
        measure=Measure(Unit.COUNT, "{} drive(s)"),
    ),
    # Held longer than the findings of hosts that wait for it.
    _warning("storage.not_responding", Action.FIX_HOST, page="GpuStarved", wait="5m", hold="20m")(
        title="a file server does not answer",
        meaning="A file server does not answer, and what reads from it or writes to it waits.",
        decision="Check the server and the network to it; jobs go on by themselves once it is back.",
        measure=Measure(Unit.COUNT, "{} server(s)"),
    ),
    _warning("cpu.slow_clock", Action.FIX_HOST, "GpuHostCpuClockLow", wait="15m")(
        title="the busiest CPU runs at a low clock",
        meaning="A CPU that is fully busy runs at a fraction of its clock: a thread that feeds a GPU takes twice as "
        "long.",
        decision="Set the governor performance (cpupower frequency-set -g performance); check power caps and heat.",
        measure=Measure(Unit.RATIO, "at {} of its maximum", low=True),
    ),
    _warning("host.clock_source", Action.FIX_HOST, "GpuHostClockSourceSlow", topic="clock_source", wait="1h")(
        title="the kernel reads the time from a slow clock",
        meaning="The kernel does not trust the CPUs' own clock: each time query takes a microsecond.",
        decision="Find in the kernel log why the TSC was marked unstable; fix the firmware, then boot with it again.",
    ),
    _info("cpu.thermal", Action.INSPECT_HARDWARE, page="GpuStarved")(
        title="CPUs were too hot",
        meaning="CPUs were too hot and lowered their clocks: whatever feeds the GPUs runs slower.",
        decision="Check fans, airflow and inlet air.",
        measure=Measure(Unit.COUNT, "{} CPU(s)"),
    ),
    _warning("memory.limited", Action.FIX_JOB, "GpuMemoryLimited", wait="5m")(
        title="a GPU job is at its own memory limit",
        meaning="A job on GPUs has reached the memory limit of its cgroup: its tasks stall, or the kernel has killed "
        "some.",
        decision="Raise the limit (Kubernetes limits.memory, Slurm --mem), or use fewer data loader workers.",
    ),
    _warning("cpu.limited", Action.FIX_JOB, "GpuCpuLimited", wait="20m")(
        title="GPU work waits because of its job's CPU limit",
        meaning="GPUs wait while the CPU limit of their job's cgroup stops it: the CPUs of the host are free, and the "
        "job must not use them.",
        decision="Raise or remove the limit (Kubernetes limits.cpu, docker --cpus, CPUQuota of systemd), or use fewer "
        "workers.",
        measure=Measure(Unit.RATIO, "stopped in {} of the periods"),
    ),
    _warning("memory.oom_killed", Action.FIX_JOB, "GpuProcessOomKilled")(
        title="the kernel killed a process of a GPU job for lack of memory",
        meaning="The host ran out of memory, or a job exceeded its share, and the kernel killed a process.",
        decision="Give the job more memory or let it use less: fewer or smaller data loader workers first.",
        measure=Measure(Unit.COUNT, "{} process(es)"),
    ),
    _info("memory.oom_killed_other", Action.NONE, page="GpuProcessOomKilled")(
        title="the kernel killed a process for lack of memory",
        meaning="The kernel killed a process for lack of memory; the process used no GPU and belonged to no GPU job.",
        decision="Nothing for the GPUs, unless it happens again.",
        measure=Measure(Unit.COUNT, "{} process(es)"),
    ),
    # Held longer than the finding on GPUs waiting for memory, which this one explains.
    _warning("memory.swapping", Action.FIX_HOST, "GpuHostSwapping", wait="15m", hold="20m")(
        title="swapping while GPU jobs run",
        meaning="The host reads memory back from swap while GPUs work: their data waits for a disk.",
        decision="Find who uses the memory, and give the job less or the host more.",
        measure=Measure(Unit.BYTES_PER_SECOND, "{} read back from swap"),
    ),
    _warning("memory.starved", Action.FIX_HOST, "GpuStarved", wait="20m")(
        title="GPU work waits for host memory",
        meaning="GPUs wait while the host is short of memory.",
        decision="Find who uses the memory, and give the job less or the host more.",
        measure=_WAITING,
    ),
    _warning("storage.starved", Action.FIX_HOST, "GpuStarved", wait="20m")(
        title="GPU work waits for storage",
        meaning="GPUs wait for data that storage does not deliver fast enough.",
        decision="Keep the data local, cache, prefetch or shard it, before adding GPUs.",
        measure=_WAITING,
    ),
    _info("storage.saturated", Action.NONE, page="GpuStarved", wait="20m")(
        title="storage is at its limit",
        meaning="Storage is at its limit, though no GPU is seen waiting for it now.",
        decision="Expect it to be the next bottleneck; do not add work that reads more.",
    ),
    _warning("cpu.starved", Action.FIX_JOB, "GpuStarved", wait="20m")(
        title="GPU work waits for CPU time",
        meaning="GPUs wait while the CPUs that feed them are fully busy.",
        decision="Tune the number of workers, move decoding to the GPU, or pin processes to the right CPUs.",
        measure=_WAITING,
    ),
    _info("cpu.saturated", Action.NONE, page="GpuStarved", wait="20m")(
        title="the CPUs of a NUMA node are at their limit",
        meaning="The CPUs of a NUMA node are at their limit, though no GPU is seen waiting for them now.",
        decision="Expect them to be the next bottleneck.",
    ),
    _warning("network.starved", Action.FIX_HOST, "GpuStarved", wait="20m")(
        title="GPU work waits for the network",
        meaning="GPUs wait while a network adapter is at its line rate, or loses packets or its link.",
        decision="If it is full, cache, compress or shard; if it loses packets, check cable, transceiver and switch.",
        measure=_WAITING,
    ),
    _warning("network.port_flapping", Action.FIX_HOST, "GpuInfinibandLinkDegraded")(
        title="an InfiniBand port keeps losing its link",
        meaning="The link of an InfiniBand or RoCE port keeps going down: jobs over several hosts stall or abort.",
        decision="Keep such jobs off the host; reseat or replace cable and transceiver, and check the switch port.",
        measure=Measure(Unit.COUNT, "{} time(s)"),
    ),
    _warning("network.port_errors", Action.FIX_HOST, "GpuInfinibandLinkDegraded", unbroken="15m")(
        title="the link of an InfiniBand port counts errors",
        meaning="The link of an InfiniBand or RoCE port counts errors: its signal is poor, and packets are sent again.",
        decision="Clean or replace cable and transceiver when the host is free.",
        measure=Measure(Unit.COUNT, "{} lately"),
    ),
    _warning("network.port_slow", Action.FIX_HOST, "GpuInfinibandLinkDegraded", wait="15m")(
        title="an InfiniBand port runs below its rate",
        meaning="An InfiniBand or RoCE port runs at a lower rate than before, or than the others of its kind on this "
        "host.",
        decision="Take the port down and up when the host is free; then replace the cable, or fix the switch port.",
        measure=Measure(Unit.RATIO, "at {} of its rate", low=True),
    ),
    _warning("network.link_degraded", Action.FIX_HOST, "GpuNetworkLinkDegraded", wait="15m")(
        title="a network interface keeps losing its link or is slow",
        meaning="A network interface keeps losing its link, or runs slower than before: data and other hosts come "
        "late.",
        decision="Check cable, transceiver and switch port, and of a bond which member is missing.",
        measure=Measure(Unit.COUNT, "{} interface(s)"),
    ),
    _info("network.interface_errors", Action.FIX_HOST, page="GpuNetworkLinkDegraded", unbroken="15m")(
        title="a network interface counts bad packets",
        meaning="A network interface counts bad packets: they are lost, and TCP sends them again.",
        decision="Check cable, transceiver and switch port (ethtool -S tells which errors).",
        measure=Measure(Unit.COUNT, "{} lately"),
    ),
    _warning("network.adapter_module", Action.INSPECT_HARDWARE, page="GpuNetworkLinkDegraded")(
        title="the cable or module of a network adapter failed or is too hot",
        meaning="A ConnectX adapter reports that a cable or module failed or is too hot: its port may be down or slow.",
        decision="Reseat or replace the cable or module, and check the air flow at the adapter.",
        measure=Measure(Unit.COUNT, "{} adapter(s)"),
    ),
    _info("network.adapter_power", Action.INSPECT_HARDWARE, page="GpuNetworkLinkDegraded")(
        title="the slot of a network adapter does not guarantee enough power",
        meaning="A ConnectX adapter reports that its slot does not guarantee enough power; it may run its ports "
        "slower.",
        decision="Check the slot's power limit (lspci -vv, SlotPowerLimit). Harmless where the ports run at full "
        "speed.",
        measure=Measure(Unit.COUNT, "{} adapter(s)"),
    ),
    _info("network.peermem", Action.FIX_JOB, page="GpuInfinibandLinkDegraded")(
        title="the module nvidia-peermem reported an error",
        meaning="The module nvidia-peermem reported an error, usually of a job that ended with memory registered for "
        "RDMA.",
        decision="Nothing for a job that was killed; otherwise check that nvidia-peermem matches the driver and OFED.",
        measure=Measure(Unit.COUNT, "{} error(s)"),
    ),
    _info("network.timeouts", Action.FIX_HOST, page="GpuInfinibandLinkDegraded", unbroken="15m")(
        title="RDMA requests time out",
        meaning="RDMA requests are not acknowledged in time: packets are lost on the way, or hosts of the job are "
        "gone.",
        decision="Look at the other hosts of the job first; then at errors of the ports on both ends and of the "
        "switches.",
        measure=Measure(Unit.COUNT, "{} lately"),
    ),
    _warning("network.port_down", Action.FIX_HOST, "GpuInfinibandPortDown", wait="5m")(
        title="an InfiniBand port that was up is down",
        meaning="A port of an InfiniBand or RoCE adapter that was up is down: jobs lose its bandwidth, or hang.",
        decision="Check cable, module and switch port (ibstat, mlxlink), and whether it was disabled.",
        measure=Measure(Unit.COUNT, "{} port(s)"),
    ),
    _warning("network.gid_missing", Action.FIX_HOST, "GpuInfinibandPortDown", wait="15m")(
        title="a RoCE port has no address, and its siblings have one",
        meaning="A RoCE port has no RoCE v2 address (GID) but its own: NCCL cannot reach other hosts through it.",
        decision="Give its interface an IP address as its siblings have (ip addr, show_gids).",
        measure=Measure(Unit.COUNT, "{} port(s)"),
    ),
    _info("network.port_waiting", Action.FIX_HOST, page="GpuInfinibandPortDown", wait="5m")(
        title="an InfiniBand port waits for its subnet manager",
        meaning="The link of an InfiniBand port is up, but the port is not configured: no subnet manager answers.",
        decision="Check the subnet manager (opensm, UFM) and the partition of the switch port.",
        measure=Measure(Unit.COUNT, "{} port(s)"),
    ),
    _info("network.saturated", Action.NONE, page="GpuStarved", wait="20m")(
        title="a network adapter is at its line rate",
        meaning="A network adapter is at its line rate, though no GPU is seen waiting for it now.",
        decision="Expect it to be the next bottleneck.",
    ),
)
