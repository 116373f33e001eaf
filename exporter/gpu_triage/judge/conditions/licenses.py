"""Does the GPU have the license to run at full speed?"""

from __future__ import annotations

from collections.abc import Iterator

from gpu_triage.judge.evidence.host import HostEvidence
from gpu_triage.judge.findings.finding import Finding, of_gpu
from gpu_triage.read.gpu.modes import GPU_VGPU_LICENSE_STATE, LICENSED


def judge_licenses(host: HostEvidence) -> Iterator[Finding]:
    for gpu in host.answering:
        for state in gpu.series(GPU_VGPU_LICENSE_STATE):
            if state.last != LICENSED:
                product = state.labels["product"] or "its license"
                yield of_gpu("vgpu.unlicensed", gpu, f"{product}: {GPU_VGPU_LICENSE_STATE.states[int(state.last)]}")
