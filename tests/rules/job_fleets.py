"""Fleets of hosts with jobs, written by hand: what each GPU and rank does, a sample a minute."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from tests.rules.handwritten import Series, counter, gpu, host, merged

from gpu_triage.read.exporter.judgment import BOTTLENECK_CLASSES

MINUTES: Final = 150
MODEL: Final = "NVIDIA H100 80GB HBM3"

Values = float | Sequence[float]
Owner = Mapping[str, str]

JITTER: Final = (0.0, 4.0, -6.0, 7.0, -3.0, 5.0, -8.0, 2.0)
"""Megahertz by which healthy GPUs of one model differ."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """What a GPU does, in each minute or always."""

    mhz: Values = 1755.0
    busy: Values = 0.97
    watts: Values = 610.0
    main_thread: Values | None = None  # share of a CPU that the main thread of its process takes
    # shares of SMs and of the memory's bandwidth, where the driver reports them
    sm_active: Sequence[float] = ()
    dram_active: Sequence[float] = ()
    bottleneck: str | Sequence[str] = "compute"
    # share of the time by throttle reason; state by finding, 1 for pending
    throttled: Mapping[str, Values] = field(default_factory=dict)
    findings: Mapping[str, Values] = field(default_factory=dict)
    owner: Owner = field(default_factory=dict)  # labels of gpu_allocated
    model: str = MODEL


def lasting(values: Values) -> list[float]:
    return [float(values)] * MINUTES if isinstance(values, (int, float)) else list(values)


def since(minute: int, value: float, before: float = 0.0) -> list[float]:
    """A value from a minute on, and another one before it."""
    return [value if at >= minute else before for at in range(MINUTES)]


def between(first: int, end: int, value: float, otherwise: float) -> list[float]:
    return [value if first <= at < end else otherwise for at in range(MINUTES)]


def fleet(*hosts: Iterable[Gpu]) -> Series:
    """Hosts a, b, c … with these GPUs."""
    named = zip("abcdefghijklmnopqrstuvwxyz", hosts, strict=False)
    return merged(*(_gpu(name, number, each) for name, gpus in named for number, each in enumerate(gpus)))


def slurm(number: int = 4711) -> Owner:
    return {"slurm_job_id": str(number), "user": "alice", "account": "physics"}


def pod(name: str, namespace: str = "ml") -> Owner:
    return {"workload_namespace": namespace, "workload_pod": name, "workload_container": "main"}


def healthy(count: int, owner: Owner, offset: int = 0) -> list[Gpu]:
    """GPUs that differ as healthy ones do."""
    return [Gpu(mhz=1755.0 + JITTER[(number + offset) % len(JITTER)], owner=owner) for number in range(count)]


def slower(each: Gpu, by: float) -> Gpu:
    return replace(each, mhz=[value * (1 - by) for value in lasting(each.mhz)])


def steps(instance: str, a_minute: Values, owner: str, rank: str = "", job_name: str = "bert") -> Series:
    """A rank's file, with so many steps in each minute."""
    labels = {"job_name": job_name, "owner": owner, **({"rank": rank} if rank else {})}
    return host("gpu_job_steps_total", counter(lasting(a_minute)), instance, **labels)


def _gpu(instance: str, number: int, each: Gpu) -> Series:
    own = {"instance": instance, "gpu": str(number)}
    uuid = f"GPU-{instance}{number}"
    named = [each.bottleneck] * MINUTES if isinstance(each.bottleneck, str) else each.bottleneck
    ranks = [float(BOTTLENECK_CLASSES.index(name) + 1) for name in named]
    one = [1.0] * MINUTES

    def series(metric: str, values: Sequence[float], **labels: str) -> Series:
        return gpu(metric, values, uuid, **own, **labels)

    return merged(
        series("gpu_up", one),
        series("gpu_info", one, name=each.model, pci_bus_id=f"0000:{number}5:00.0", serial="1650"),
        series("gpu_clock_hertz", [mhz * 1e6 for mhz in lasting(each.mhz)], clock="sm"),
        series("gpu_busy_seconds_total", _seconds(each.busy)),
        series("gpu_power_watts", lasting(each.watts)),
        series("gpu_power_limit_watts", lasting(700.0)),
        series("gpu_power_default_limit_watts", lasting(700.0)),
        series("gpu_bottleneck", ranks),
        *(
            series("gpu_bottleneck_seconds_total", counter(60.0 * (name == at) for at in named), **{"class": name})
            for name in sorted(set(named))
        ),
        *(
            series("gpu_throttle_seconds_total", _seconds(shares), reason=reason)
            for reason, shares in {"sw_power_cap": 0.0, **each.throttled}.items()
        ),
        *(
            series("gpu_finding", lasting(states), code=code, severity="warning", action="fix_host")
            for code, states in each.findings.items()
        ),
        *(
            series(metric, values)
            for metric, values in (
                ("gpu_main_thread_cpu_seconds_total", None if each.main_thread is None else _seconds(each.main_thread)),
                ("gpu_sm_active_ratio", each.sm_active),
                ("gpu_dram_active_ratio", each.dram_active),
                ("gpu_observed_seconds_total", each.sm_active and _seconds(1.0)),
            )
            if values
        ),
        *([series("gpu_allocated", one, **each.owner)] if each.owner else []),
    )


def _seconds(shares: Values) -> list[float]:
    return counter(60 * share for share in lasting(shares))
