"""What each finding means and what to do about it, in a sentence each."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from gpu_triage.baseline.link_advice import IDLE_WIDTH_ADVICE, LINK_ADVICE, Advice, LinkCause
from gpu_triage.diagnosis.findings.host_advice import HOST_ADVICE
from gpu_triage.xid.codes import NONFATAL_ACTION, NONFATAL_MEANING, UNLISTED_ACTION, UNLISTED_MEANING, XID_CODES


def _xid(meaning: str, action: str) -> Advice:
    # The meanings in the table of Xids are parts of a sentence.
    return Advice(f"{meaning[0].upper()}{meaning[1:]}.", action)


ADVICE: Final = MappingProxyType(
    {
        "driver.unavailable": Advice(
            "The NVIDIA driver does not answer: no new job can start on this host, and running ones may have failed.",
            "Read the kernel log and the module's state (lsmod, dkms status), then repair or reload the driver. "
            "Reboot if it is stalled.",
        ),
        "gpu.missing": Advice(
            "The driver shows fewer GPUs than the host should have.",
            "Stop here until it is back: check power, seating, firmware settings and the kernel log.",
        ),
        "gpu.lost": Advice(
            "The GPU does not answer any more: no tuning helps, and jobs on it are dead or hang.",
            "Drain it and save the kernel log; reset it or power-cycle the host, then inspect the hardware.",
        ),
        "gpu.released": Advice(
            "The exporter was told to release the GPUs, so that one can be reset: it monitors none.",
            "Send it SIGUSR2, or POST /-/acquire, when the work on them is done.",
        ),
        "driver.module_missing": Advice(
            "CUDA needs the kernel module nvidia_uvm, and it is not loaded.",
            "Unless nvidia-modprobe loads it with the first job, load it at boot.",
        ),
        "driver.version_mismatch": Advice(
            "The driver's libraries and the loaded kernel module are of different versions: no program can use a GPU.",
            "Reload the kernel module or reboot; keep the driver's packages at one version.",
        ),
        "driver.nouveau": Advice(
            "The kernel's own driver nouveau holds the GPU, so NVIDIA's driver cannot.",
            "Blacklist nouveau, build the initramfs anew, and reboot.",
        ),
        "driver.bound_elsewhere": Advice(
            "Another kernel driver, such as nova_core of Linux 7, holds the GPU, so NVIDIA's driver cannot use it.",
            "Blacklist that driver, rebuild the initramfs, and reboot.",
        ),
        "driver.not_probed": Advice(
            "When the NVIDIA driver was loaded, another kernel driver held a GPU: the NVIDIA driver left it alone.",
            "Nothing, if a virtual machine has that GPU (lspci -k shows vfio-pci); else unload the other driver.",
        ),
        "driver.unsupported": Advice(
            "The installed driver does not support this GPU.",
            "Install the driver that the kernel log asks for: the open kernel modules, or an older branch.",
        ),
        "driver.earlier": Advice(
            "The driver failed earlier and has worked since: it was loaded again, or its GPUs answer.",
            "Nothing, unless it keeps happening; then read the kernel log of that time.",
        ),
        "gpu.gsp_timeout": Advice(
            "The GPU's system processor (GSP) stopped answering the driver: the GPU does no more work.",
            "Drain the GPU, then reset it; reboot the host if the reset fails.",
        ),
        "gpu.inforom": Advice(
            "The data that the board keeps about itself is damaged: serial number and ECC history cannot be trusted.",
            "Plan to have the board flashed or replaced by its vendor; it computes as before.",
        ),
        "driver.bar": Advice(
            "The firmware gave the GPU no address range for its memory, so the driver cannot use it.",
            "Enable Above 4G Decoding (and Resizable BAR) in the firmware setup, or boot with pci=realloc.",
        ),
        "driver.init_failed": Advice(
            "The driver found the GPU and could not initialise it: nothing can run on it.",
            "Power-cycle the host; if it fails again, try another driver version, then check seating and power.",
        ),
        "fabric.version_mismatch": Advice(
            "A program that manages the NVSwitches, mostly the fabric manager, is not of the driver's version.",
            "Install the fabric manager (or nscq) of the driver's version and restart it: CUDA fails without a fabric.",
        ),
        "nvswitch.sxid_fatal": Advice(
            "An NVSwitch had a fatal error: jobs over several GPUs of this host fail until it is reset.",
            "Drain the host, reset all GPUs and switches or reboot; then check the switch and its links.",
        ),
        "nvswitch.sxid": Advice(
            "An NVSwitch reported an error that is not fatal, or long ago.",
            "Watch for more of them; check the links that it names if they keep coming.",
        ),
        "xid.unlisted": _xid(UNLISTED_MEANING, UNLISTED_ACTION),
        "xid.nonfatal": _xid(NONFATAL_MEANING, NONFATAL_ACTION),
        "xid.same_unit": Advice(
            "Programs fail on this GPU in one place of the chip, whatever runs: the board is at fault, not they.",
            "Drain the GPU when its job ends, run dcgmi diag -r 3, and have the board replaced.",
        ),
        "gpu.repeat_offender": Advice(
            "The same fault came back on this board or in this slot: another reset will not mend it.",
            "If different boards failed in the slot, check the slot, riser and power; otherwise replace the board.",
        ),
        "xid.earlier": Advice(
            "A critical Xid happened earlier, and the kernel log still holds it.",
            "Make sure that somebody dealt with it: reset the GPU if nobody did.",
        ),
        "ecc.uncorrected": Advice(
            "The memory had errors that ECC could not correct since the driver was loaded.",
            "Drain the GPU and reset it; if they come back, plan to replace the board.",
        ),
        "ecc.contained": Advice(
            "The memory had an error that ECC could not correct; the driver contained it, so only one job met it.",
            "Restart the job that died, and reset the GPU when its other jobs are done.",
        ),
        "ecc.corrected": Advice(
            "ECC corrected memory errors just now; harmless one by one, a warning when they keep coming.",
            "Watch the daily count.",
        ),
        "ecc.sram_threshold": Advice(
            "Uncorrected SRAM errors passed the board's threshold for replacement.",
            "Plan to replace the board.",
        ),
        "ecc.mode_pending": Advice(
            "The ECC mode will change with the next reboot or reset.",
            "Make sure that this is intended.",
        ),
        "memory.row_remap_failure": Advice(
            "A bad memory row could not be replaced by a spare one.",
            "Drain the GPU and replace the board.",
        ),
        "memory.row_remap_pending": Advice(
            "A bad memory row waits for a reset to be replaced.",
            "Reset the GPU when its job is done.",
        ),
        "memory.retired_pages_pending": Advice(
            "Bad memory pages wait for a reboot to be retired.",
            "Reboot the host, or reset the GPU, when its job is done.",
        ),
        "recovery.action": Advice(
            "The driver itself asks for an action to get this GPU well.",
            "Drain it and do what the driver asks for.",
        ),
        "recovery.drain_and_reset": Advice(
            "The driver asks for this GPU to be drained and reset; jobs that run on it may finish.",
            "Take no new jobs on it, and reset it when its jobs are done.",
        ),
        "fabric.unhealthy": Advice(
            "The GPU has not joined the NVSwitch fabric, or its part of it is unhealthy: jobs over several GPUs fail.",
            "Check the fabric manager's service and log; then the switches.",
        ),
        "fabric.degraded": Advice(
            "The GPU's part of the NVSwitch fabric has less bandwidth than it should, or recovers from errors.",
            "Keep jobs over several GPUs off it; reset it when it is free, and read the log of the fabric manager.",
        ),
        "fabric.service_down": Advice(
            "The fabric manager does not run, and without it no CUDA job can start on GPUs behind NVSwitches.",
            "Read its log (journalctl -u nvidia-fabricmanager), and start it in exactly the driver's version.",
        ),
        "thermal.hw": Advice(
            "The hardware slows the GPU down to save it from heat; with several GPUs the others wait for it.",
            "Take it out of use; check fans, airflow, dust, inlet air and the cooler's seating.",
        ),
        "thermal.sw": Advice(
            "The driver lowers the clocks to keep the GPU below its target temperature.",
            "Improve the airflow or spread the heat; lower the power limit only as a stopgap.",
        ),
        "thermal.margin": Advice(
            "The GPU or its memory is a few degrees from slowing down.",
            "Check cooling before it throttles.",
        ),
        "thermal.low_limit": Advice(
            "The firmware limits the GPU to a temperature far below the one at which the board slows down.",
            "On a laptop, check its thermal profile and thermald; then update or roll back BIOS and driver.",
        ),
        "power.brake": Advice(
            "The power supply or the board pulled the power brake: the clocks are halved or worse.",
            "Check power supplies, cables and the rack's budget.",
        ),
        "power.hw_slowdown": Advice(
            "The hardware slows the clocks down and says neither heat nor power brake.",
            "Check power delivery and cooling; short flashes at changes of the P-state are normal.",
        ),
        "power.reading": Advice(
            "The driver reads more power than the board can draw at this clock, and throttles the GPU for it.",
            "Power-cycle the host; if it persists, go back to the driver, BIOS and linux-firmware that worked.",
        ),
        "power.cap": Advice(
            "Somebody set the power limit below the board's default, and it holds the clocks.",
            "Restore the limit if nobody wants it so (nvidia-smi -pl).",
        ),
        "power.limit": Advice(
            "The power limit is below the board's default; it will hold the clocks under load.",
            "Restore the limit if nobody wants it so (nvidia-smi -pl).",
        ),
        "clock.policy": Advice(
            "Application clocks are below their default: every job here is slower than elsewhere.",
            "Reset them (nvidia-smi -rac), or write down why they are so.",
        ),
        "clock.straggler": Advice(
            "The GPU runs slower than its siblings under the same work, and a synchronous job runs at its pace.",
            "Look at its heat, power and clocks first; move the job off it.",
        ),
        "pcie.width": LINK_ADVICE["width", LinkCause.LINK],
        "pcie.width_idle": IDLE_WIDTH_ADVICE,
        "pcie.generation": LINK_ADVICE["generation", LinkCause.LINK],
        "pcie.flapping": Advice(
            "The link keeps changing its speed or width under load.",
            "Check riser, slot and power management settings (ASPM).",
        ),
        "pcie.replays": Advice(
            "Packets arrive broken and are sent again: the signal is marginal.",
            "Check riser, seating and cables before the link trains down.",
        ),
        "pcie.aer": Advice(
            "The kernel counts PCIe errors on the GPU or on the port above it.",
            "Check riser, seating and cables; the end that counts is not always the end at fault.",
        ),
        "pcie.below_peers": Advice(
            "The slot itself gives this GPU less than its siblings have.",
            "Move the card, or change the slot's lane settings, if it should be equal.",
        ),
        "baseline.drift": Advice(
            "The host is not what it was when its baseline was recorded.",
            "Run gpu-triage baseline diff to see what changed; mend it, or record a new baseline if it is intended.",
        ),
        "p2p.unavailable": Advice(
            "GPUs that should reach each other directly cannot: their traffic goes through host memory.",
            "Check IOMMU, ACS, virtualisation and firmware settings.",
        ),
        "nvlink.down": Advice(
            "An NVLink link is down: collectives lose its bandwidth.",
            "Check bridges, seating and the fabric manager; reset the GPU.",
        ),
        "nvlink.errors": Advice(
            "NVLink links count errors.",
            "Watch them; if they go on, check bridges and seating.",
        ),
        "numa.mismatch": Advice(
            "A process is bound to the CPUs of another socket than its GPU's: every transfer crosses between them.",
            "Bind it to the GPU's own node (numactl, the scheduler's affinity settings).",
        ),
        "work.imbalance": Advice(
            "Several processes share one GPU while another has none.",
            "Fix the launcher: one rank a GPU, and look at CUDA_VISIBLE_DEVICES.",
        ),
        "work.memory_imbalance": Advice(
            "One GPU's memory is nearly full while a sibling's is nearly empty.",
            "Check where the job places its tensors, or shard the model.",
        ),
        "work.low_power": Advice(
            "Kernels are resident all the time and do little: most likely they spin at barriers.",
            "Look at communication: P2P, NVLink, placement; then batch size and overlap.",
        ),
        "work.memory_full": Advice(
            "Device memory is nearly full and still growing.",
            "Expect an out-of-memory error; many frameworks pre-allocate, which is no fault.",
        ),
        "work.blocked": Advice(
            "A process on the GPU waits in the kernel and does not run: its job hangs, and cannot be killed meanwhile.",
            "Read its stack (/proc/PID/task/*/stack), and restore what it waits for: file server, disk or GPU driver.",
        ),
        "work.hung": Advice(
            "The job worked, then stopped without letting go of the GPU: a dead peer, a deadlock, a lost file system.",
            "Save the stacks of its ranks (py-spy dump), then have its owner restart it.",
        ),
        "work.held_idle": Advice(
            "A process holds device memory and the GPU rests: it may hang, be starting, or serve nobody now.",
            "Look at its log and stack; only history (GpuHungProcess, GpuAllocatedIdle) can tell which.",
        ),
        "work.allocated_unused": Advice(
            "The scheduler gave the GPU away and nobody is on it: the job starts, has left it, or asked for too many.",
            "If it lasts (GpuAllocatedIdle), ask the owner to free it.",
        ),
        "vgpu.unlicensed": Advice(
            "The vGPU has no license: 20 minutes after boot, its driver begins to slow it down more and more.",
            "Check nvidia-gridd and its log, the client token, the network path to the license server, and the clock.",
        ),
        "policy.persistence": Advice(
            "Without persistence the driver unloads the GPU when its last client leaves: slow starts, lost settings.",
            "Run nvidia-persistenced.",
        ),
        **HOST_ADVICE,
        **{f"xid.{xid.code}": _xid(xid.meaning, xid.action) for xid in XID_CODES.values()},
    }
)
"""Of every finding, by code."""
