"""The playbook's words as numbers, each written once; shares are of the window, 0-1."""

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
THERMAL_SHARE: Final = 0.10  # class thermal, and hw_thermal as an alert: throttled for more than this under load
SW_THERMAL_SHARE: Final = 0.25  # sw_thermal as an alert
NEAR_SLOWDOWN_CELSIUS: Final = 5.0  # near slowdown: fewer degrees left than this
LOW_LIMIT_CELSIUS: Final = 25.0  # a highest operating temperature so far below slowdown: firmware limits it
OVERREAD_POWER_RATIO: Final = 1.2  # more power than the highest limit allows, at a low clock: the reading is wrong
POWER_BRAKE_SHARE: Final = 0.05  # class power_brake: hw_power_brake, or hw_slowdown that nothing else explains

# Class power_cap: sw_power_cap for at least this share, with the limit below its default, and at the limit.
POWER_CAP_CLASS_SHARE: Final = 0.5
POWER_CAP_SHARE: Final = 0.9  # as an alert
NEAR_LIMIT_SHARE: Final = 0.9  # at the limit: at least this share of its power drawn, or gpu_throttle_active says so
LOWERED_LIMIT_RATIO: Final = 0.99  # a power limit below this share of its default was lowered by somebody

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
SAME_FINDING_SECONDS: Final = 300.0  # a finding that comes back within so long keeps its beginning

# Class memory: swapping in at least this fast, or PSI memory some of at least MEMORY_PRESSURE_SHARE.
SWAP_IN_BYTES_PER_SECOND: Final = 1024.0**2
MEMORY_PRESSURE_SHARE: Final = 0.1
SWAPPING_BYTES_PER_SECOND: Final = 65536.0  # as an alert, while a compute process is there

# Class storage: iowait of at least this share of the host's CPU time, or one of the next three.
IOWAIT_SHARE: Final = 0.10
IO_PRESSURE_SHARE: Final = 0.2
DISK_BUSY_SHARE: Final = 0.9
NFS_SECONDS: Final = 0.05  # an operation, at NFS_OPERATIONS_PER_SECOND or more
NFS_OPERATIONS_PER_SECOND: Final = 10.0
DISK_WORKS_SHARE: Final = 0.05  # a disk that is busy for so long may be what tasks wait for

# Class cpu: the CPUs of the GPU's NUMA node busy for this share, or the busiest one for BUSIEST_CPU_SHARE.
NODE_CPU_SHARE: Final = 0.9
BUSIEST_CPU_SHARE: Final = 0.98

LINE_RATE_SHARE: Final = 0.85  # class network: a NIC or HCA at this share of its line rate in either direction

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
XID_APPLICATION_COUNT: Final = 3  # application Xids up to this many are an application's own business

SLOW_CLOCK_RATIO: Final = 0.45  # a CPU that is busy for SLOW_CLOCK_BUSY_SHARE, and runs below this share of its clock
SLOW_CLOCK_BUSY_SHARE: Final = 0.9
KERNEL_RECENT_SECONDS: Final = 600.0  # what the kernel says of the host counts as of now for this long,
KERNEL_OPEN_SECONDS: Final = 3600.0  # and what points to broken hardware for this long
BLOCKED_SECONDS: Final = 60.0  # a thread of a process that has not run once for so long hangs in the kernel
HUNG_TASKS: Final = 2  # tasks that hang, fewer are one's own business

# The window of these counts; a shorter one is scaled to it, and needs SCALED_EVENTS at least.
EVENTS_WINDOW_SECONDS: Final = 900.0
SCALED_EVENTS: Final = 2
REPLAYS: Final = 30
CORRECTABLE_AER_ERRORS: Final = 100
NVLINK_REPLAYS_AND_RECOVERIES: Final = 10
NVLINK_CRC_ERRORS: Final = 100
LINK_TRANSITIONS: Final = 10
PORT_LINK_ERRORS: Final = 30  # of an InfiniBand or RoCE port, and bad packets of an interface
PORT_TIMEOUTS: Final = 10  # of RDMA requests that nobody acknowledged: class network

STRAGGLER_BELOW_SHARE: Final = 0.10  # its SM clock is lower than the median of its busy peers by more than this share
STRAGGLER_PEERS: Final = 3
# At its default power limit for POWER_CAP_CLASS_SHARE of the time, and its peers for no more than this: harder work.
STRAGGLER_PEERS_CAP_SHARE: Final = 0.1

MEMORY_FULL_SHARE: Final = 0.97  # memory near full: used beyond this,
MEMORY_GROWTH_SHARE: Final = 0.001  # and more by this share of it than at the beginning
IMBALANCED_FULL_SHARE: Final = 0.9  # memory imbalance: one GPU filled beyond this,
IMBALANCED_EMPTY_SHARE: Final = 0.1  # a sibling of its model below this

# A repeat offender: this many incidents of one kind on one board, or in one slot, within so many days.
REPEATED_IN_7_DAYS: Final = 2
REPEATED_IN_30_DAYS: Final = 3
