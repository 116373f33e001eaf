"""What each finding about the host around the GPUs means and what to do about it."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from gpu_triage.baseline.link_advice import Advice

HOST_ADVICE: Final = MappingProxyType(
    {
        "memory.oom_killed": Advice(
            "The host ran out of memory, or a job out of its share, and the kernel killed a process.",
            "Give the job more memory or let it use less: fewer or smaller data loader workers first.",
        ),
        "pcie.dpc": Advice(
            "A PCIe port shut its link after an uncorrectable error: what is behind it was gone for a while, or is.",
            "See what is behind the port (lspci -tv); check riser, seating and cables.",
        ),
        "network.adapter_module": Advice(
            "A ConnectX adapter reports that a cable or module failed or is too hot: its port may be down or slow.",
            "Reseat or replace the cable or module, and check the air flow at the adapter.",
        ),
        "network.adapter_power": Advice(
            "A ConnectX adapter says that its slot does not promise enough power; it may run its ports slower.",
            "Check the slot's power limit (lspci -vv, SlotPowerLimit). Harmless where the ports run at full speed.",
        ),
        "network.peermem": Advice(
            "The module nvidia-peermem reported an error: mostly a job ended while its memory was registered for RDMA.",
            "Nothing for a job that was killed; otherwise check that nvidia-peermem matches the driver and OFED.",
        ),
        "host.hardware_error": Advice(
            "The CPU, its memory or the firmware reported a hardware error that could not be corrected.",
            "Drain the host when its jobs end, find the part (rasdaemon, the BMC's event log), and replace it.",
        ),
        "host.memory_errors": Advice(
            "ECC corrects errors of a DIMM of the host just now: harmless one by one, a warning when they keep coming.",
            "Watch the daily count, and replace the DIMM if it goes on.",
        ),
        "host.lockup": Advice(
            "A CPU did nothing but run one piece of kernel code for 20 seconds or more: everything on it stood still.",
            "Read the call trace in the kernel log; on a virtual machine look for stolen CPU time first.",
        ),
        "host.hung_task": Advice(
            "Tasks hang in the kernel for minutes: most often the storage they wait for does not answer.",
            "Read their stacks in the kernel log, and check the storage or the driver that stands in them.",
        ),
        "storage.read_only": Advice(
            "A filesystem went read-only, or shut down, after an error: jobs can write neither checkpoints nor logs.",
            "Drain the host, check the disk under it (nvme smart-log, smartctl), then repair the filesystem.",
        ),
        "storage.nvme": Advice(
            "An NVMe drive stopped answering, and the kernel reset or gave it up.",
            "Save what is on it, check its log (nvme smart-log, nvme error-log) and firmware, and replace it.",
        ),
        "storage.nvme_timeout": Advice(
            "Commands to an NVMe drive timed out; it may be overloaded, or begin to fail.",
            "Watch for resets of it; check its temperature, firmware and power saving settings.",
        ),
        "storage.not_responding": Advice(
            "A file server does not answer, and what reads from it or writes to it waits.",
            "Check the server and the network to it; jobs go on by themselves once it is back.",
        ),
        "cpu.slow_clock": Advice(
            "A CPU that is fully busy runs at a fraction of its clock: a thread that feeds a GPU takes twice as long.",
            "Set the governor performance (cpupower frequency-set -g performance); check power caps and heat.",
        ),
        "host.clock_source": Advice(
            "The kernel does not trust the CPUs' own clock: each look at the time takes a microsecond.",
            "Find in the kernel log why the TSC was marked unstable; fix the firmware, then boot with it again.",
        ),
        "cpu.thermal": Advice(
            "CPUs were too hot and lowered their clocks: whatever feeds the GPUs runs slower.",
            "Check fans, airflow and inlet air.",
        ),
        "memory.swapping": Advice(
            "The host reads memory back from swap while GPUs work: their data waits for a disk.",
            "Find who uses the memory, and give the job less or the host more.",
        ),
        "memory.starved": Advice(
            "GPUs wait while the host is short of memory.",
            "Find who uses the memory, and give the job less or the host more.",
        ),
        "storage.starved": Advice(
            "GPUs wait for data that storage does not bring fast enough.",
            "Keep the data local, cache, prefetch or shard it, before adding GPUs.",
        ),
        "storage.saturated": Advice(
            "Storage is at its limit, though no GPU is seen waiting for it now.",
            "Expect it to be the next bottleneck; do not add work that reads more.",
        ),
        "cpu.starved": Advice(
            "GPUs wait while the CPUs that feed them have no more to give.",
            "Tune the number of workers, move decoding to the GPU, or pin processes to the right CPUs.",
        ),
        "cpu.saturated": Advice(
            "The CPUs of a NUMA node are at their limit, though no GPU is seen waiting for them now.",
            "Expect them to be the next bottleneck.",
        ),
        "network.starved": Advice(
            "GPUs wait while a network adapter is at its line rate, or loses packets or its link.",
            "If it is full, cache, compress or shard; if it loses packets, check cable, transceiver and switch.",
        ),
        "network.port_flapping": Advice(
            "The link of an InfiniBand or RoCE port keeps going down: jobs over several hosts stall or abort.",
            "Keep such jobs off the host; reseat or replace cable and transceiver, and check the switch port.",
        ),
        "network.port_errors": Advice(
            "The link of an InfiniBand or RoCE port counts errors: its signal is poor, and packets are sent again.",
            "Clean or replace cable and transceiver at the next chance.",
        ),
        "network.port_slow": Advice(
            "An InfiniBand or RoCE port runs at a lower rate than before, or than its like on this host.",
            "Take the port down and up when the host is free; then replace the cable, or fix the switch port.",
        ),
        "network.link_degraded": Advice(
            "A network interface keeps losing its link, or runs slower than before: data and other hosts come late.",
            "Check cable, transceiver and switch port, and of a bond which member is missing.",
        ),
        "network.interface_errors": Advice(
            "A network interface counts bad packets: they are lost, and TCP sends them again.",
            "Check cable, transceiver and switch port (ethtool -S tells which errors).",
        ),
        "network.timeouts": Advice(
            "RDMA requests are not acknowledged in time: packets are lost on the way, or hosts of the job are gone.",
            "Look at the other hosts of the job first; then at errors of the ports on both ends and of the switches.",
        ),
        "network.port_waiting": Advice(
            "The link of an InfiniBand port is up, but nobody has configured the port: no subnet manager answers.",
            "Check the subnet manager (opensm, UFM) and the partition of the switch port.",
        ),
        "network.saturated": Advice(
            "A network adapter is at its line rate, though no GPU is seen waiting for it now.",
            "Expect it to be the next bottleneck.",
        ),
    }
)
