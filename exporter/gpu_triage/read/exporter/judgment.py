"""Metrics of the judge's verdicts and findings for each GPU and the host; `judge` creates their samples."""

from functools import partial
from typing import Final

from gpu_triage.read.metrics.contract import Subject
from gpu_triage.read.metrics.metric import Tier, gpu_counter, gpu_gauge, host_gauge

BOTTLENECK_CLASSES: Final = (
    *("sick", "thermal", "power_brake", "pcie_link", "power_cap", "clock_cap", "hung", "memory", "storage", "cpu"),
    *("network", "numa", "communication", "compute", "unattributed", "idle"),
)
"""What can limit a GPU, in the order of the playbook: the first class that matches applies."""

_judge_gauge = partial(gpu_gauge, source="the judge")
_host_judge_gauge = partial(host_gauge, source="the judge")
_VERDICTS: Final = {0: "keep", 1: "watch", 2: "drain"}

GPU_BOTTLENECK = _judge_gauge(
    "Which resource limits the GPU first, over the last minute: {states}. One series per GPU in any state.",
    states=dict(enumerate(BOTTLENECK_CLASSES, 1)),
)
GPU_COMPUTE_BOUND = _judge_gauge(
    "What bounds the kernels of a GPU in class compute of gpu_bottleneck, over the last minute: {states}. Neither: "
    "small kernels, or gaps between them. Absent in other classes, in a pause, while an encoder or decoder "
    "is the busiest, and without GPM (before Hopper, in MIG mode, without permission).",
    states={0: "neither", 1: "compute", 2: "memory", 3: "both"},
)
GPU_BOTTLENECK_SECONDS_TOTAL = gpu_counter(
    "Seconds that the GPU spent in each class of gpu_bottleneck since the exporter started or first saw it. All "
    "classes exist from the start.",
    labels={"class": BOTTLENECK_CLASSES},
    source="the judge",
)
GPU_VERDICT = _judge_gauge(
    "Whether to keep the GPU in service: {states}. Drain for a confirmed critical finding that holds now, watch for "
    "any other critical finding, or a warning that is confirmed or has lasted for 5 minutes or half of its wait. "
    "Absent while the GPU cannot be read and there is no finding.",
    states=_VERDICTS,
)
GPU_HOST_VERDICT = _host_judge_gauge(
    "Whether to keep the host in service: {states}. Absent while nothing can be read and there is no finding.",
    states=_VERDICTS,
)
ACCEPTED: Final = 3
"""State of a finding about a GPU that is pending or confirmed, and accepted: nothing acts on it."""
_FINDING_STATES: Final = {0: "ended", 1: "pending", 2: "confirmed"}

GPU_FINDING = _judge_gauge(
    "State of a finding about the GPU: {states}. Ended for 20 minutes, then absent. Without gpu and uuid: about the "
    "GPU at pci_bus_id, which the driver does not show.",
    labels=("pci_bus_id", "code", "severity", "action"),
    states={**_FINDING_STATES, ACCEPTED: "accepted"},
)
_finding_gauge = partial(_judge_gauge, labels=("pci_bus_id", "code"))

GPU_FINDING_LASTED_SECONDS = _finding_gauge(
    "How long the condition of a finding has been observed to hold, by the exporter's own clock. Absent when "
    "gpu_finding is."
)
GPU_FINDING_VALUE = _finding_gauge(
    "Last measured value of a finding, in the unit that docs/alerts.md has for its code. Absent when gpu_finding is, "
    "and for findings without a value."
)
GPU_FINDING_SINCE_TIMESTAMP_SECONDS = _judge_gauge(
    "Unix time at which the condition of a pending or confirmed finding was first observed. Absent otherwise. Once it "
    "is confirmed, `detail` names the part in up to 100 characters, if there is more to name: x4 of x16.",
    labels=("pci_bus_id", "code", "severity", "action", "detail"),
)
GPU_FINDING_ACCEPTED_UNTIL_TIMESTAMP_SECONDS = _judge_gauge(
    "Unix time until which an operator accepted a finding about the GPU: no alert and no verdict follows from it. "
    "Absent otherwise, and once it is clearly worse.",
    labels=("pci_bus_id", "code", "by", "reason"),
)
GPU_HOST_FINDINGS = _host_judge_gauge("Number of pending or confirmed findings about the host and its GPUs.")
GPU_HOST_FINDING = _host_judge_gauge(
    "State of a finding about the host: {states}; see gpu_finding.",
    labels=("code", "severity", "action"),
    states=_FINDING_STATES,
)
GPU_HOST_FINDING_LASTED_SECONDS = _host_judge_gauge(
    "How long the condition of a finding about the host has been observed to hold; see gpu_finding_lasted_seconds.",
    labels=("code",),
)
GPU_HOST_FINDING_VALUE = _host_judge_gauge(
    "Last measured value of a finding about the host; see gpu_finding_value.", labels=("code",)
)
GPU_HOST_FINDING_SINCE_TIMESTAMP_SECONDS = _host_judge_gauge(
    "Unix time at which the condition of a pending or confirmed finding about the host was first observed. Absent "
    "otherwise. `detail` is as in gpu_finding_since_timestamp_seconds: mlx5_3 port 1.",
    labels=("code", "severity", "action", "detail"),
)


OF_GPU: Final = (GPU_FINDING, GPU_FINDING_LASTED_SECONDS, GPU_FINDING_VALUE, GPU_FINDING_SINCE_TIMESTAMP_SECONDS)
OF_HOST: Final = (
    GPU_HOST_FINDING,
    GPU_HOST_FINDING_LASTED_SECONDS,
    GPU_HOST_FINDING_VALUE,
    GPU_HOST_FINDING_SINCE_TIMESTAMP_SECONDS,
)
"""State, how long it has lasted, value and beginning of a finding about a GPU, or about the host."""
FINDING_SERIES: Final = (*OF_GPU, *OF_HOST, GPU_HOST_FINDINGS, GPU_FINDING_ACCEPTED_UNTIL_TIMESTAMP_SECONDS)
"""All metrics of findings."""


JUDGE = Subject("what limits each GPU, and whether to keep it in service", Tier.MEDIUM)
