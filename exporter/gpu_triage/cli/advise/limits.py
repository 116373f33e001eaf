"""What the answer does not know."""

from __future__ import annotations

from collections.abc import Iterator

from gpu_triage.cli.advise.assumptions import SHORT_STEP
from gpu_triage.cli.advise.decision import Choice
from gpu_triage.cli.advise.job import Job, Workload
from gpu_triage.cli.advise.recommendation import Recommendation
from gpu_triage.cli.advise.units import count


def limits_of(job: Job, answer: Recommendation) -> Iterator[str]:
    """Yield the limits of an answer."""
    if answer.decision.choice is Choice.NO_GPU:
        return
    if job.lora_rank is not None:
        hidden, layers = job.shape
        yield (
            f"LoRA's parameters are estimated: {count(job.parameters)} as a transformer with hidden size {hidden:.0f} "
            f"and {layers:.0f} layers, adapters on every linear layer: 18 x {hidden:.0f} x {job.lora_rank} x "
            f"{layers:.0f} = {count(job.trained)}"
        )
    if job.workload is Workload.INFERENCE:
        yield "the KV cache grows with concurrent requests and their length: leave room for it"
        yield "speed is not computed: each token of a split model waits for many small exchanges, so latency decides"
        return
    yield (
        "activations grow with batch, sequence length and model: measure the peak of a short run, with "
        "torch.cuda.max_memory_allocated() or gpu_memory_used_bytes"
    )
    if answer.exchanges:
        yield (
            "the shares of line rates are assumptions (docs/advise.md); check yours with all_reduce_perf of nccl-tests"
        )
        yield (
            "input pipeline, latency of each call and the framework's own time are not counted; below a step of "
            f"{SHORT_STEP.value * 1000:.0f} ms they decide"
        )
        if job.same_total_batch:
            yield "all GPUs together have the batch of one, so each gets less to compute and its kernels get smaller"
        else:
            yield "each GPU has the batch that one has alone; if the total must not grow, add --same-total-batch"
