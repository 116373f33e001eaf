"""GPUs that work, as what is read of them shows, for a judge."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from tests.fed import Fed

from gpu_triage.judge.report.report import Report
from gpu_triage.read.gpu import device_memory, identity, mig, modes, power, presence, throttle
from gpu_triage.read.gpu.activity import GPU_BUSY_SECONDS_TOTAL, GPU_MEMORY_UTILIZATION_RATIO, GPU_SM_UTILIZATION_RATIO
from gpu_triage.read.metrics.metric import MetricSpec, Sample
from gpu_triage.read.processes import on_gpu, threads

MODEL = ("NVIDIA L40S", "", "", "", "ada", "8.9", "", "")
MOST_MHZ = 2100.0
WATTS = 300.0
REASONS = ("hw_thermal", "sw_thermal", "hw_slowdown", "hw_power_brake", "sw_power_cap", "applications_clocks")


class Card(NamedTuple):
    """A GPU that works all the time, and how it differs from one at its pace."""

    mhz: float = MOST_MHZ
    held: Mapping[str, float] = {}  # share of the time by throttle reason
    watts: float = 250.0
    busy: float | None = 1.0  # None in MIG mode, where instances tell
    memory: float = 0.5
    instances: tuple[float, ...] = ()  # SM activity
    more: Mapping[MetricSpec, float] = {}
    job: str = "77"
    counted: bool = True  # whether throttling is
    processes: int | None = 1  # None if the driver does not list them
    used_gib: float = 20.0
    full_thread: bool = False  # whether a thread of its job fills a CPU
    worked_seconds: float | None = None  # in all; None if it has worked like this since 0

    def samples(self, at: float, index: int) -> Iterator[Sample]:
        gpu = (str(index), f"GPU-{index}")
        yield presence.GPU_UP.sample(1, *gpu)
        yield identity.GPU_INFO.sample(1, *gpu, *MODEL)
        yield device_memory.GPU_MEMORY_USED_BYTES.sample(self.used_gib * 1024**3, *gpu)
        if self.processes is not None:
            yield on_gpu.GPU_PROCESSES.sample(self.processes, *gpu, "compute")
        if self.processes:
            yield from self._process(gpu, str(4100 + index))
        yield power.GPU_CLOCK_HERTZ.sample(self.mhz * 1e6, *gpu, "sm")
        yield power.GPU_CLOCK_MAX_HERTZ.sample(MOST_MHZ * 1e6, *gpu, "sm")
        yield power.GPU_POWER_WATTS.sample(self.watts, *gpu)
        yield power.GPU_POWER_LIMIT_WATTS.sample(WATTS, *gpu)
        yield power.GPU_POWER_DEFAULT_LIMIT_WATTS.sample(WATTS, *gpu)
        yield GPU_MEMORY_UTILIZATION_RATIO.sample(self.memory, *gpu)
        yield modes.GPU_MIG_MODE.sample(self.busy is None, *gpu)
        for number, activity in enumerate(self.instances):
            yield mig.GPU_MIG_SM_ACTIVE_RATIO.sample(activity, *gpu, f"MIG-{number}")
        if self.busy is not None:
            yield GPU_SM_UTILIZATION_RATIO.sample(self.busy, *gpu)
            worked_seconds = self.busy * at if self.worked_seconds is None else self.worked_seconds
            yield GPU_BUSY_SECONDS_TOTAL.sample(worked_seconds, *gpu)
        for reason in REASONS if self.counted else ():
            yield throttle.GPU_THROTTLE_SECONDS_TOTAL.sample(self.held.get(reason, 0.0) * at, *gpu, reason)
        yield from (spec.sample(value, *gpu) for spec, value in self.more.items())

    def _process(self, gpu: tuple[str, str], pid: str) -> Iterator[Sample]:
        yield on_gpu.GPU_PROCESS_INFO.sample(1, *gpu, pid, "python", "ada", "", "", "", "", "", self.job)
        yield threads.GPU_RUNNING_THREAD_SECONDS_TOTAL.sample(0.0, *gpu)
        yield threads.GPU_BUSIEST_THREAD_RATIO.sample(1.0 if self.full_thread else 0.1, *gpu, pid, "python")


def judged(*cards: Card, seconds: float = 90.0) -> Report:
    fed = Fed(5.0)
    fed.run(seconds, lambda at: [sample for index, card in enumerate(cards) for sample in card.samples(at, index)])
    return fed.report
