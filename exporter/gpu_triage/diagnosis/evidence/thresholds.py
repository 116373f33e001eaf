"""The playbook's words as numbers, each written once; shares are of the window, 0-1.

What decides a finding alone can be set, and stands in `findings.limits`.
"""

from __future__ import annotations

from typing import Final

WINDOW_SECONDS: Final = 60.0  # the judge looks back this far,
WINDOW_ROUNDS: Final = 2  # or so many rounds of the medium tier where that is more
RECENT_SECONDS: Final = 30.0  # the last part, by which scarcity of the host and state of the PCIe link are judged
NOW_SECONDS: Final = 15.0  # by which it is judged whether somebody works on a GPU without being listed
EASE: Final = 0.85  # a class stays until its measure is this much below what it takes to enter: no flicker

# Busy: kernels resident, or video encoded or decoded, for at least this share of the time.
BUSY_SHARE: Final = 0.8
STILL_BUSY_SHARE: Final = 0.7  # down to which a GPU stays in class compute
RESUMED_SHARE: Final = 0.9  # of the last part of the window, that of a GPU that rested or waited and is back in compute
WORKING_SHARE: Final = 0.05  # works: anything worth the name
LESS_BUSY_SECONDS: Final = 120.0  # until unattributed follows compute: a job evaluates its model at less than full pace

# Under load: busy for at least this share, and in a P-state of at most LOADED_P_STATE.
LOADED_SHARE: Final = 0.2
LOADED_P_STATE: Final = 2

# Waiting: a job, busy for less than this share, though it worked within WORKED_SECONDS.
WAITING_BELOW_SHARE: Final = 0.7
STILL_WAITING_SHARE: Final = 0.75  # up to which a GPU in a class of starvation waits
WORKED_SECONDS: Final = 3600.0

SLOWED_CLOCK_RATIO: Final = 0.8  # slowed down: an SM clock below this share of its highest
STOPPED_COUNTER_SHARE: Final = 0.5  # a reason was active for this share of RECENT_SECONDS, and its counter stood still
THERMAL_SECONDS: Final = 300.0  # the finding thermal.hw goes by the share of so many seconds under load,
SW_THERMAL_SECONDS: Final = 900.0  # and thermal.sw of so many
NEAR_SLOWDOWN_SHARE: Final = 0.5  # near slowdown for this share
NEAR_SLOWDOWN_SECONDS: Final = 600.0  # of so many seconds under load: a GPU that paused takes minutes to warm up again
POWER_BRAKE_SECONDS: Final = 120.0  # the finding: short enough that one pull, as when a supply fails over, is over soon
SLOWDOWN_SECONDS: Final = 300.0  # the same for hw_slowdown
# What comes and goes is one: above its share in RETURNED_SPELLS of PARTS of PART_SECONDS, and in all parts together.
PART_SECONDS: Final = 60.0
PARTS: Final = 15
RETURNED_SPELLS: Final = 2

# Class power_cap: sw_power_cap for at least this share, with the limit below its default, and at the limit.
POWER_CAP_CLASS_SHARE: Final = 0.5
POWER_CAP_SECONDS: Final = 300.0  # the finding goes by so many seconds under load
NEAR_LIMIT_SHARE: Final = 0.9  # at the limit: at least this share of its power drawn, or gpu_throttle_active says so

# Hung: busy for less than this share, drawing less than HUNG_POWER_SHARE of the limit, holding HELD_BYTES, for
# HUNG_SECONDS, straight after WORKED_SHARE.
HUNG_BUSY_SHARE: Final = 0.01
HUNG_POWER_SHARE: Final = 0.5  # T4 and L4 that a process keeps awake (P0) rest at up to 0.43: 27 W of 70 and 72
HELD_BYTES: Final = 1024.0**3  # as much device memory as a job would hold
HUNG_SECONDS: Final = 270.0  # as long as a job may pause, for a checkpoint or between epochs
WORKED_SHARE: Final = 0.5  # of the minute before it came to rest
PAUSE_SECONDS: Final = 15.0  # a rest of this length is a pause; shorter ones are the rhythm of the job's steps
PAUSES_APART_SECONDS: Final = 120.0  # pauses that end less than this apart are none: something keeps the job waiting
SAME_PACE: Final = 0.7  # a job that works again at this share of its pace before a pause goes on as before
UNKNOWN_SECONDS: Final = 35.0  # until unattributed and idle are entered, which say that nothing is known or there

SWAPPING_SECONDS: Final = 300.0  # the finding memory.swapping goes by so many seconds

# A finding about a class: the GPU is in it, or was for more than this share of so many seconds.
CLASS_SHARE: Final = 0.5
CLASS_SECONDS: Final = 600.0
CLASS_SEEN_SECONDS: Final = 300.0  # of which it was seen for at least so many

# Stuck in a collective: so many GPUs of a host in class communication that move less than this.
SILENT_GPUS: Final = 2
SILENT_BYTES_PER_SECOND: Final = 1e6

ALLOCATED_IDLE_SECONDS: Final = 7200.0  # held for all of it, and working for less than WORKING_SHARE of it

# Requests of NFS or Lustre under way on average; fewer do not show that somebody waits for the server.
OUTSTANDING_REQUESTS: Final = 1.0
# A disk that is busy all the time is at its limit if its requests take this long, as a hard disk's do, or so many are
# under way, as SATA can queue, or tasks stall for I/O for this share of the time.
SLOW_REQUEST_SECONDS: Final = 0.005
LONG_QUEUE: Final = 32.0
STALLED_BY_DISK_SHARE: Final = 0.05

# A cgroup that its CPU limit stops loses at least so much, in CPUs: short bursts of one that mostly rests cost little.
THROTTLED_CPUS: Final = 0.05

BLOCKED_THREADS: Final = 0.5  # so many threads of a job, on average, wait for storage in the kernel

DISK_WORKS_SHARE: Final = 0.05  # a disk that is busy for so long may be what tasks wait for

# Class communication: busy for this share while drawing less than SPINNING_POWER_SHARE of the limit, and with less than
# SPINNING_SM_ACTIVITY where the SMs tell.
SPINNING_BUSY_SHARE: Final = 0.9
SPINNING_POWER_SHARE: Final = 0.45
SPINNING_SM_ACTIVITY: Final = 0.5
SPINNING_SECONDS: Final = 15.0  # until it is entered: the power of a GPU that was held back takes some seconds to rise
XID_RECENT_SECONDS: Final = 600.0  # an Xid counts as of now for this long
XID_OPEN_SECONDS: Final = 3600.0  # a critical Xid is a finding for this long, or until a reset;
XID_DAMAGE_SECONDS: Final = 86_400.0  # while the damage lasts, for this long
CONTAINED_SECONDS: Final = 60.0  # a double-bit error (Xid 48) was contained if Xid 94 is less than this away from it

HOT_CPU_SHARE: Final = 0.05  # CPUs were too hot for this share of HOT_CPU_SECONDS
HOT_CPU_SECONDS: Final = 900.0
OOM_KILLED_SECONDS: Final = 900.0  # a process that the kernel killed counts for this long,
HELD_GPU_SECONDS: Final = 1800.0  # if it, or its job, was on a GPU within this
HUNG_TASK_SECONDS: Final = 900.0  # a task that hangs counts for this long
KERNEL_RECENT_SECONDS: Final = 600.0  # what the kernel says of the host counts as of now for this long,
KERNEL_OPEN_SECONDS: Final = 3600.0  # and what points to broken hardware for this long

# The window of counts of events; a shorter one is scaled to it, and needs SCALED_EVENTS at least.
EVENTS_WINDOW_SECONDS: Final = 900.0
# Five minutes less than their findings wait: a shorter burst, as when a link trains, does not count.
EVENTS_REMEMBERED_SECONDS: Final = 600.0
SCALED_EVENTS: Final = 2
RESTING_SHARE: Final = 0.05  # at rest for longer, a link changes its generation in the rhythm of the work
WIDTH_CHANGES_SECONDS: Final = 900.0  # a change of width under load counts for this long
SEVERE_AER_SECONDS: Final = 1800.0  # an error that the link could not correct counts for longer than it waits
NVLINK_FLAPS_SECONDS: Final = 1800.0  # an NVLink that went down counts for this long,
RECOVERIES_SECONDS: Final = 3600.0  # a recovery of one for so long,
PORT_DOWNS_SECONDS: Final = 3600.0  # and a port or an interface that lost its link
UNCORRECTED_SECONDS: Final = 3600.0  # an uncorrected error of the host's memory counts for this long

# Lighter work: it draws less than this share of its busy peers' median power, and nothing slows it down for longer.
LIGHTER_POWER_SHARE: Final = 0.6
LIGHTER_THROTTLED_SHARE: Final = 0.05
# Held by a clock setting for this share of the time, and its peers' median for no more than the next.
SET_CLOCK_SHARE: Final = 0.5
SET_CLOCK_PEERS_SHARE: Final = 0.1
# At its default power limit for POWER_CAP_CLASS_SHARE of the time, and its peers for no more than this: harder work.
STRAGGLER_PEERS_CAP_SHARE: Final = 0.1

FULL_UPLINK_SHARE: Final = 0.75  # of what a PCIe link carries, its packets' headers take the rest

MEMORY_GROWTH_SECONDS: Final = 900.0  # memory that grew within this
