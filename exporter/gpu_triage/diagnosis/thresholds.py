"""The playbook's words as numbers, each written once; shares are of the window, 0-1."""

from __future__ import annotations

from typing import Final

WINDOW_SECONDS: Final = 60.0
"""The judge looks back this far, or WINDOW_ROUNDS rounds of the medium tier where that is more."""

WINDOW_ROUNDS: Final = 2

RECENT_SECONDS: Final = 30.0
"""The last part of the window: what the host is short of, and how the PCIe link runs, is judged by this."""

EASE: Final = 0.85
"""A class that a GPU is in stays until its measure is this much below what it takes to enter: no flicker."""

BUSY_SHARE: Final = 0.8
"""Busy: kernels resident, or video encoded or decoded, for at least this share of the time."""

STILL_BUSY_SHARE: Final = 0.7
"""A GPU in class compute stays there down to this share."""

RESUMED_SHARE: Final = 0.9
"""A GPU that rested or waited is in class compute again once the last part of the window is this busy."""

LOADED_SHARE: Final = 0.2
"""Under load: busy for at least this share, and in a P-state of at most LOADED_P_STATE."""

LOADED_P_STATE: Final = 2

WAITING_BELOW_SHARE: Final = 0.7
"""Waiting: a job, busy for less than this share, though it worked (WORKING_SHARE) within WORKED_SECONDS."""

STILL_WAITING_SHARE: Final = 0.75
"""A GPU in a class of starvation waits up to this share."""

WORKING_SHARE: Final = 0.05
"""Works: anything worth the name."""

WORKED_SECONDS: Final = 3600.0

NOW_SECONDS: Final = 15.0
"""Whether somebody works on a GPU without being listed is judged by the last so many seconds."""

THERMAL_SHARE: Final = 0.10
"""Class thermal, and hw_thermal as an alert: throttled for more than this share while under load."""

SW_THERMAL_SHARE: Final = 0.25
"""sw_thermal as an alert."""

POWER_BRAKE_SHARE: Final = 0.05
"""Class power_brake: hw_power_brake, or hw_slowdown that nothing else explains, for more than this share."""

POWER_CAP_CLASS_SHARE: Final = 0.5
"""Class power_cap: sw_power_cap for at least this share, with the limit below its default, and at the limit."""

NEAR_LIMIT_SHARE: Final = 0.9
"""At the limit: at least this share of its power drawn, or the driver says so (gpu_throttle_active)."""

LOWERED_LIMIT_RATIO: Final = 0.99
"""A power limit below this share of its default was lowered by somebody."""

POWER_CAP_SHARE: Final = 0.9
"""The power cap as an alert."""

NEAR_SLOWDOWN_CELSIUS: Final = 5.0
"""Near slowdown: fewer degrees left than this."""

HUNG_BUSY_SHARE: Final = 0.01
"""Hung: busy for less than this share, drawing less than HUNG_POWER_SHARE of the limit, holding HELD_BYTES, for
HUNG_SECONDS, straight after WORKED_SHARE."""

HUNG_POWER_SHARE: Final = 0.5
"""Boards that a process keeps awake (P0) rest at up to 0.43 of a small limit: T4 and L4 at 27 W of 70 and 72."""

HELD_BYTES: Final = 1024.0**3
"""As much device memory as a job would hold."""

PAUSE_SECONDS: Final = 15.0
"""A rest of this length is a pause; shorter ones are the rhythm of the job's steps."""

PAUSES_APART_SECONDS: Final = 120.0
"""Pauses that end less than this apart are none: something keeps the job waiting."""

SAME_PACE: Final = 0.7
"""A job that works again at this share of its pace before a pause goes on as before."""

HUNG_SECONDS: Final = 270.0
"""As long as a job may pause, for a checkpoint or between epochs; what rests for longer is hung."""

WORKED_SHARE: Final = 0.5
"""A job that was busy for at least this share of the minute before it came to rest has worked."""

CALM_SECONDS: Final = 35.0
"""Classes unattributed and idle, which say that nothing is known or nothing is there, are entered after so long."""

LESS_BUSY_SECONDS: Final = 120.0
"""Class unattributed after compute is entered after so long: a job evaluates its model at less than full pace."""

SAME_FINDING_SECONDS: Final = 300.0
"""A finding that comes back within so long keeps its beginning."""

SWAP_IN_BYTES_PER_SECOND: Final = 1024.0**2
"""Class memory: swapping in at least this fast, or PSI memory some of at least MEMORY_PRESSURE_SHARE."""

MEMORY_PRESSURE_SHARE: Final = 0.1

SWAPPING_BYTES_PER_SECOND: Final = 65536.0
"""Swapping as an alert: pages come back faster than this while a compute process is there."""

IOWAIT_SHARE: Final = 0.10
"""Class storage: iowait of at least this share of the host's CPU time, or one of the next three."""

IO_PRESSURE_SHARE: Final = 0.2

DISK_BUSY_SHARE: Final = 0.9

NFS_SECONDS: Final = 0.05
"""NFS as the cause: this long an operation, at NFS_OPERATIONS_PER_SECOND or more."""

NFS_OPERATIONS_PER_SECOND: Final = 10.0

DISK_WORKS_SHARE: Final = 0.05
"""A disk that is busy for so long may be what tasks wait for."""

NODE_CPU_SHARE: Final = 0.9
"""Class cpu: the CPUs of the GPU's NUMA node busy for this share, or the busiest one for BUSIEST_CPU_SHARE."""

BUSIEST_CPU_SHARE: Final = 0.98

LINE_RATE_SHARE: Final = 0.85
"""Class network: a NIC or HCA at this share of its line rate in either direction."""

SPINNING_BUSY_SHARE: Final = 0.9
"""Class communication: busy for this share while drawing less than SPINNING_POWER_SHARE of the limit, and with
less than SPINNING_SM_ACTIVITY where the SMs tell."""

SPINNING_SECONDS: Final = 15.0
"""Class communication is entered after so long: the power of a GPU that was held back takes some seconds to rise."""

SPINNING_POWER_SHARE: Final = 0.45

SPINNING_SM_ACTIVITY: Final = 0.5

XID_RECENT_SECONDS: Final = 600.0
"""An Xid counts as of now for this long."""

XID_OPEN_SECONDS: Final = 3600.0
"""A critical Xid is a finding for this long, or until a reset; while the damage lasts, for XID_DAMAGE_SECONDS."""

XID_DAMAGE_SECONDS: Final = 86_400.0

CONTAINED_SECONDS: Final = 60.0
"""A double-bit error (Xid 48) was contained if Xid 94 is less than this away from it."""

XID_APPLICATION_COUNT: Final = 3
"""Application Xids up to this many are an application's own business."""

EVENTS_WINDOW_SECONDS: Final = 900.0
"""The window of the counts below; a shorter one is scaled to it, and needs SCALED_EVENTS at least."""

SCALED_EVENTS: Final = 2

REPLAYS: Final = 30
CORRECTABLE_AER_ERRORS: Final = 100
NVLINK_REPLAYS_AND_RECOVERIES: Final = 10
NVLINK_CRC_ERRORS: Final = 100
LINK_TRANSITIONS: Final = 10

STRAGGLER_BELOW_SHARE: Final = 0.10
"""A straggler's SM clock is lower than the median of its busy peers by more than this share."""

STRAGGLER_PEERS: Final = 3

STRAGGLER_PEERS_CAP_SHARE: Final = 0.1
"""At its default power limit for POWER_CAP_CLASS_SHARE of the time, and its peers for no more than this: no straggler
but harder work."""

MEMORY_FULL_SHARE: Final = 0.97
"""Memory near full: used beyond this, and more by MEMORY_GROWTH_SHARE of it than at the beginning."""

MEMORY_GROWTH_SHARE: Final = 0.001

IMBALANCED_FULL_SHARE: Final = 0.9
"""Memory imbalance: one GPU filled beyond this, a sibling of its model below IMBALANCED_EMPTY_SHARE."""

IMBALANCED_EMPTY_SHARE: Final = 0.1

REPEATED_IN_7_DAYS: Final = 2
"""A repeat offender: this many incidents of one kind on one board, or in one slot, within 7 days, or
REPEATED_IN_30_DAYS within 30."""

REPEATED_IN_30_DAYS: Final = 3
