"""The playbook's terms as numbers; shares are 0-1 of the window. Those of one finding are in `findings.settings`."""

from collections.abc import Mapping
from typing import Final

WINDOW_SECONDS: Final = 60.0  # how far back the judge looks,
WINDOW_ROUNDS: Final = 2  # or this many rounds of the medium tier if that is longer
RECENT_SECONDS: Final = 30.0  # last part of the window, used for scarcity on the host and the state of the PCIe link
NOW_SECONDS: Final = 15.0  # used to judge whether an unlisted process works on a GPU
EASE: Final = 0.85  # hysteresis: a class is left only below this share of its entry threshold

# A condition must last its wait within so many waits. A third of the time costs a job more than most of what lasts; a
# checkpoint, an evaluation or a reload takes less of it.
WAITS_IN_WINDOW: Final = 3.0
WINDOW_PARTS: Final = 12  # how finely the window is kept: a quarter of a wait
LIKE_GAP: Final = 1.5  # up to this many times its longest gap, the next one is like it
# A job that has lost so many seconds of its work is reported without the rest of the wait. A tenth does not count: the
# pace of a healthy job varies so much. Nor does more than a half: at half its pace, it takes 200 s, five minutes with
# the time that the evidence needs and the alert, and longer than an evaluation or a data loader that catches up.
LOST_SECONDS: Final = 80.0
LEAST_LOSS: Final = 0.1
MOST_LOSS: Final = 0.5
# What a GPU did before, on average: over the time from USUAL_SECONDS to LATELY_SECONDS ago, of the same job. It must
# have lasted for KNOWN_SECONDS: a job that starts was never faster.
USUAL_SECONDS: Final = 2400.0
LATELY_SECONDS: Final = 600.0
KNOWN_SECONDS: Final = 600.0

# Strong evidence decides sooner: over this much of the window, if nothing like it was seen for NEWS_SECONDS before.
# What comes back sooner is the rhythm of the job, which the whole window judges.
SOON_SECONDS: Final = 10.0
NEWS_SECONDS: Final = 90.0
NO_CAUSE_SECONDS: Final = 8.0  # for so long in addition, a GPU waits for nothing known: a cause may show later,
STILL_SECONDS: Final = 5.0  # and to the end

# How long after a boot, or after the driver was loaded, a GPU may still appear: one behind a PCIe switch or a cable was
# seen two minutes after the others. As long as the fabric manager may take to start.
STARTING_SECONDS: Final = 300.0

# Busy: a kernel resident, or video encoded or decoded, for at least this share of the time.
BUSY_SHARE: Final = 0.7
STILL_BUSY_SHARE: Final = 0.65  # down to this, a GPU stays in class compute
RESUMED_SHARE: Final = 0.9  # of RECENT_SECONDS: a GPU that was idle or waiting is back in compute
WORKING_SHARE: Final = 0.05  # working: a noticeable amount of work

OBSERVED_SHARE: Final = 0.5  # of the time: a window of which less was observed shows nothing,
OBSERVED_SECONDS: Final = 5.0  # if the GPU is up for this long: the first readings are a few seconds apart

# Under load: busy for at least this share, and in a P-state of at most LOADED_P_STATE.
LOADED_SHARE: Final = 0.2
LOADED_P_STATE: Final = 2

# Waiting: a job that is busy for less than this share, and worked within WORKED_SECONDS or stalls itself.
WAITING_BELOW_SHARE: Final = 0.7
STILL_WAITING_SHARE: Final = 0.75  # up to this, a GPU in a starvation class is still waiting
SOON_WAITING_SHARE: Final = 0.6  # over SOON_SECONDS
OWN_STALL_SHARE: Final = 0.82  # up to this, a job's own stalls are what it waits for
STILL_OWN_STALL_SHARE: Final = 0.86  # the same for a GPU in a starvation class
WORKED_SECONDS: Final = 3600.0

SLOWED_CLOCK_RATIO: Final = 0.8  # slowed down: SM clock below this share of its maximum
STOPPED_COUNTER_SHARE: Final = 0.5  # stuck counter: constant while its reason is active this share of RECENT_SECONDS
NEAR_SLOWDOWN_SHARE: Final = 0.5  # near slowdown for this share
NEAR_SLOWDOWN_SECONDS: Final = 600.0  # of this much time under load: after a pause, a GPU takes minutes to warm up
# Intermittent: above its share in separate spells within PARTS parts of PART_SECONDS under load, and on average.
PART_SECONDS: Final = 60.0
PARTS: Final = 15

# Class power_cap: sw_power_cap for at least this share, the limit lowered below its default, and the GPU at the limit.
POWER_CAP_CLASS_SHARE: Final = 0.5
NEAR_LIMIT_SHARE: Final = 0.9  # at the limit: draws at least this share of it, or gpu_throttle_active reports it

# Hung: busy for less than this share, drawing less than HUNG_POWER_SHARE of the limit and holding HELD_BYTES for
# HUNG_SECONDS, directly after being busy for WORKED_SHARE.
HUNG_BUSY_SHARE: Final = 0.01
HUNG_POWER_SHARE: Final = 0.5
HELD_BYTES: Final = 1024.0**3  # as much device memory as a job would use
HUNG_SECONDS: Final = 270.0  # longest pause of a job, for a checkpoint or between epochs
WORKED_SHARE: Final = 0.5  # of the minute before it became idle
PAUSE_SECONDS: Final = 15.0  # idle for this long is a pause; less is the rhythm of the job's steps
PAUSES_APART_SECONDS: Final = 120.0  # pauses that end closer together do not count: something keeps the job waiting
SAME_PACE: Final = 0.7  # at this share of its pace before a pause, a job has resumed normally
UNKNOWN_SECONDS: Final = 20.0  # before entering unattributed or idle, the classes without a known cause or job

# Finding about a class: the GPU is in the class, or was for more than this share of CLASS_SECONDS.
CLASS_SHARE: Final = 0.5
CLASS_SECONDS: Final = 600.0
CLASS_SEEN_SECONDS: Final = 300.0  # of which at least this much was observed

# Stuck in a collective: at least this many GPUs of a job on a host spin and move less than this, or stopped.
SILENT_GPUS: Final = 2
SILENT_BYTES_PER_SECOND: Final = 1e6
# A job that stopped: longer than most pauses without a checkpoint, and soon enough to save stacks before NCCL aborts.
STOPPED_SECONDS: Final = 160.0
STUCK_SECONDS: Final = 130.0  # the same for GPUs that spin, which takes most of a minute to be seen
WAITED_FOR_SECONDS: Final = 50.0  # some of its GPUs stopped and the others spin: they wait for a rank
# A rank that works, or a job that saves a checkpoint, explains a wait for this long.
UNEXPLAINED_SECONDS: Final = 1200.0
# If what the job writes is unknown, a host that writes explains a wait for this long: NCCL aborts after 600, and the
# finding's wait and a person need some of them.
HOST_SAVES_SECONDS: Final = 300.0
SAVING_BYTES_PER_SECOND: Final = 1e7  # a job, or a host, that saves a checkpoint writes or uploads this much
LOADING_BYTES_PER_SECOND: Final = 1e7  # a job that loads data or a model reads this much: more than logs and modules
WORKING_CPU_SHARE: Final = 0.5  # of a CPU: a thread of a job that computes there while its GPU is idle
UPLOADING_RATIO: Final = 3.0  # uploads: sends this many times what it receives, as ranks send as much as they receive

ALLOCATED_IDLE_SECONDS: Final = 7200.0  # held throughout, and working for less than WORKING_SHARE of it

# Average NFS or Lustre requests in flight; fewer do not prove that a task is waiting for the server.
OUTSTANDING_REQUESTS: Final = 1.0
# A disk that is busy all the time is saturated if its requests take this long (a hard disk's latency), this many are in
# flight, or tasks stall on I/O for this share of the time.
SLOW_REQUEST_SECONDS: Final = 0.005
LONG_QUEUE: Final = 32.0
STALLED_BY_DISK_SHARE: Final = 0.05

# A cgroup throttled by its CPU limit loses at least this many CPUs: short bursts of a mostly idle one cost little.
THROTTLED_CPUS: Final = 0.05

BLOCKED_THREADS: Final = 0.5  # average number of a job's threads blocked on storage in the kernel

DISK_WORKS_SHARE: Final = 0.05  # a disk busy for this share may be what tasks wait for

# Class communication: resident and not working, with peers to wait for. Busy for this share while drawing less than
# SPINNING_POWER_SHARE of the limit, with memory and SM activity below these shares.
SPINNING_BUSY_SHARE: Final = 0.9
SPINNING_POWER_SHARE: Final = 0.45
SPINNING_SM_ACTIVITY: Final = 0.5
SPINNING_MEMORY_SHARE: Final = 0.1
TALKING_BYTES_PER_SECOND: Final = 1e6  # RDMA adapters send this much: the job has ranks on other hosts

# Class compute, on average over the window. Compute-bound: the busiest pipe of the SMs is active for this share of the
# time. Memory-bound: this share of the memory bandwidth is in use.
ARITHMETIC_BOUND_SHARE: Final = 0.4
MEMORY_BOUND_SHARE: Final = 0.5

XID_RECENT_SECONDS: Final = 600.0  # an Xid counts as recent for this long
XID_OPEN_SECONDS: Final = 3600.0  # a critical Xid is a finding for this long, or until a reset;
XID_DAMAGE_SECONDS: Final = 86_400.0  # while the damage lasts, for this long
XID_FOLLOWS_SECONDS: Final = 60.0  # a program's exception explains Xid 43, 45 or 109 of it within this time
LINK_LOSS_SECONDS: Final = 10.0  # a port's error explains a GPU that falls off the bus within this time
CONTAINED_SECONDS: Final = 60.0  # a double-bit error (Xid 48) was contained if Xid 94 occurred within this time of it

HOT_CPU_SHARE: Final = 0.05  # CPUs were too hot for this share of HOT_CPU_SECONDS
HOT_CPU_SECONDS: Final = 900.0
OOM_KILLED_SECONDS: Final = 900.0  # an OOM-killed process counts for this long,
HELD_GPU_SECONDS: Final = 1800.0  # if it, or its job, was on a GPU within this time

# Window for event counts; counts over a shorter period are scaled to it and need at least SCALED_EVENTS.
EVENTS_WINDOW_SECONDS: Final = 900.0
# Five minutes less than the confirmation time of their findings, so a shorter burst (link training) does not count.
EVENTS_REMEMBERED_SECONDS: Final = 600.0
SCALED_EVENTS: Final = 2
RESTING_SHARE: Final = 0.05  # idle for more than this share, a link changes generation along with the work
WIDTH_CHANGES_SECONDS: Final = 900.0  # a change of width under load counts for this long
SEVERE_AER_SECONDS: Final = 1800.0  # an uncorrectable link error counts this long, more than its confirmation time
NVLINK_FLAPS_SECONDS: Final = 1800.0  # an NVLink that went down counts for this long,
SLOW_NVLINK_SHARE: Final = 0.9  # of its line rate: an NVLink below is slow; lower rates are far lower
RECOVERIES_SECONDS: Final = 3600.0  # an NVLink recovery for this long,
PORT_DOWNS_SECONDS: Final = 3600.0  # and a port or an interface that lost its link for this long
UNCORRECTED_SECONDS: Final = 3600.0  # an uncorrected error of the host's memory counts for this long

# Lighter work: draws less than this share of its busy peers' median power, and is throttled for at most the next share.
LIGHTER_POWER_SHARE: Final = 0.6
LIGHTER_THROTTLED_SHARE: Final = 0.05
# Limited by a clock setting for this share of the time, while the median of its peers is at most SET_CLOCK_PEERS_SHARE.
SET_CLOCK_SHARE: Final = 0.5
SET_CLOCK_PEERS_SHARE: Final = 0.1
IDLE_SIBLINGS: Final = 2  # of its model, that a GPU which is hot at rest is compared with
# Harder work: at its default power limit for POWER_CAP_CLASS_SHARE of the time, and its peers for at most this share.
STRAGGLER_PEERS_CAP_SHARE: Final = 0.1

LOST_TOGETHER: Final = 2  # lost GPUs of a host from which what they share is suspect: two fail by chance in years

FULL_LINK_SHARE: Final = 0.75  # of a PCIe link's capacity; packet headers take the rest

# Waiting for the network: retransmits at least this share of the TCP segments, of at least so many per second.
RETRANSMITTED_SHARE: Final = 0.02
FEWEST_SEGMENTS: Final = 100.0
DROPPED_PER_SECOND: Final = 1000.0  # an interface that drops fewer packets may not know their protocols

MEMORY_GROWTH_SECONDS: Final = 900.0  # period over which memory growth is measured
PCIE_BIT_ERROR_RATE: Final = 1e-12  # of a link: 15 replays per minute on 16 lanes of generation 4
PCIE_BITS_PER_SECOND: Final = {1: 2.5e9, 2: 5e9, 3: 8e9, 4: 16e9, 5: 32e9, 6: 64e9, 7: 128e9}
"""Of one lane, by generation."""

SOURCES: Final[Mapping[str, str]] = {
    "ARITHMETIC_BOUND_SHARE": "NVIDIA's trainings on H100 reach 0.41 to 0.48 of the tensor cores' peak (MFU, README of "
    "Megatron-LM)",
    "HUNG_POWER_SHARE": "captures of T4 and L4 kept awake by an idle process: 27 W of 70 and 72",
    "LONG_QUEUE": "depth of SATA's queue",
    "MEMORY_BOUND_SHARE": "60% of the 0.8 that can be reached (DCGM, DRAM activity): below it, Nsight Compute reports "
    "latency issues",
    "PCIE_BIT_ERROR_RATE": "the PCIe specification for a lane, DCGM for a link",
}
"""Where a threshold is from; all others, of findings and rules too, are house values."""
