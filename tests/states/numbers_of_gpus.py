"""Numbers of a GPU, and threads of a job, that many states have."""

from typing import Any, Final

from tests.states.play import BOARDS, DISK, FIRST_PID, LAN, MOUNT, State, Thread

from gpu_triage_simulator.host_effects import Cgroup, Disk, Network, Nfs
from gpu_triage_simulator.readings import Readings


def busy(share: float, *, memory: float | None = None, watts: float | None = None, **more: Any) -> Readings:
    """A GPU with kernels for a share of the time."""
    return Readings(utilization=share, memory_utilization=memory, power_watts=watts, **more)


def idle(board: str = "l40s", **more: Any) -> Readings:
    """A GPU whose process runs no kernel and keeps its clocks up."""
    still = {"sm_active": 0.0, "tensor_active": 0.0, "dram_active": 0.0, "fp32_active": 0.0}
    base: dict[str, Any] = {
        "utilization": 0.0,
        "memory_utilization": 0.0,
        "power_watts": BOARDS[board].idle_watts,
        "receive": 1e5,
        "transmit": 1e5,
        **(still if BOARDS[board].gpm else {}),
    }
    return Readings(**base | more)


def waits(share: float, board: str = "l40s", **more: Any) -> Readings:
    """A GPU that works for a share of the time, and waits for the rest of it."""
    numbers, rest = BOARDS[board].numbers, BOARDS[board].idle_watts
    part = share / 0.98
    scaled = {
        name: getattr(numbers, name) * part
        for name in ("memory_utilization", "sm_active", "tensor_active", "dram_active", "fp32_active", "receive")
        if getattr(numbers, name) is not None
    }
    watts = rest + (numbers.power_watts - rest) * part  # type: ignore[operator]  # each board has its power
    return Readings(**{"utilization": share, "power_watts": watts, **scaled, **more})


def spins(board: str = "l40s", **more: Any) -> Readings:
    """A GPU in a collective: a kernel all the time, which polls for its peers."""
    watts = {"a10": 62, "t4": 29, "3090": 135, "4090": 88, "l40s": 98, "a100": 112, "h100": 190, "h200": 200}[board]
    few = {"sm_active": 0.13, "tensor_active": 0.0, "dram_active": 0.01, "fp32_active": 0.0}
    base = {"utilization": 1.0, "memory_utilization": 0.01, "power_watts": watts, "receive": 2e5, "transmit": 2e5}
    return Readings(**base | (few if BOARDS[board].gpm else {}) | more)


def cgroup(*numbers: int, **more: Any) -> Cgroup:
    """The cgroup of the job of these GPUs."""
    return Cgroup(pids=tuple(FIRST_PID + 10 * number for number in numbers), **more)


def blocked(channel: str, count: int = 4) -> tuple[Thread, ...]:
    """Threads of loaders that the kernel keeps waiting, beside a main thread that waits for them."""
    return (Thread("python", 0.02), *(Thread("pt_data_worker", 0.0, "D", channel) for _ in range(count)))


ON_DISK, ON_NFS = blocked("folio_wait_bit_common"), blocked("rpc_wait_bit_killable")
FULL_DISK: Final = Disk(DISK, busy=0.99, read_seconds=0.04, reads_per_second=900)
SLOW_NFS: Final = Nfs(MOUNT, 90, 9e7, 0.11)


def loaders(share: float, count: int = 8, main: float = 0.3) -> tuple[Thread, ...]:
    """Threads of loaders that run for a share of the time, beside a main thread."""
    return (Thread("python", main, "R"), *([Thread("pt_data_worker", share, "R")] * count))


WAITS_FOR_LOADERS: Final = (Thread("python", 0.05), Thread("pt_data_worker", 0.3), Thread("pt_data_worker", 0.3))


def starved(name: str, wanted: str, share: float, *effects: Any, **more: Any) -> State:
    """A job that keeps its GPUs busy for a share of the time; it waits for its loaders, if it has no other threads."""
    return State(name, wanted, (waits(share), *effects), **{"threads": WAITS_FOR_LOADERS, **more})


def tcp(lost: float, segments_per_second: float = 22_500) -> Network:
    """A host that sends so many segments, and loses a share of them; the simulator's have 4,000 bytes."""
    sent = segments_per_second * 4000
    return Network(LAN, transmit_bytes_per_second=sent, segments_resent_per_second=segments_per_second * lost)
