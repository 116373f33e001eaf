"""The answer as JSON; docs/advise.md describes the format."""

from __future__ import annotations

import json
from typing import Final

from gpu_triage.cli.advise.assumptions import ASSUMPTIONS
from gpu_triage.cli.advise.exchange import Exchange
from gpu_triage.cli.advise.headline import headline
from gpu_triage.cli.advise.job import Job
from gpu_triage.cli.advise.limits import limits_of
from gpu_triage.cli.advise.memory import Memory
from gpu_triage.cli.advise.recommendation import Recommendation
from gpu_triage.cli.advise.steps import StepTime

VERSION: Final = 1


def as_json(job: Job, answer: Recommendation, step: StepTime) -> str:
    """Return the answer as JSON. Sizes are in bytes, times in seconds, shares 0-1; null is unknown."""
    document = {
        "format": "gpu-triage-advice",
        "version": VERSION,
        "job": _job(job, step),
        "choice": answer.decision.choice.value,
        "headline": headline(job, answer),
        "because": answer.decision.because,
        "gpus": answer.gpus,
        "other_gpus": answer.other_gpus,
        "replicas": answer.replicas,
        "usable_gpus": answer.usable_gpus,
        "fix_first": [
            {
                "code": finding.check.code,
                "gpu": finding.gpu,
                "measured": finding.measured,
                "meaning": finding.advice.meaning,
                "decision": finding.advice.decision,
            }
            for finding in answer.first
        ],
        "left_out": [each._asdict() for each in answer.left_out],
        "notes": answer.notes,
        "memory": None if answer.memory is None else _memory(answer.memory),
        "alternatives": [each._asdict() for each in answer.alternatives],
        "groups": [_group(each) for each in answer.exchanges],
        "assumptions": {each.name: each.value for each in ASSUMPTIONS},
        "limits": tuple(limits_of(job, answer)),
    }
    return json.dumps(document, indent=2)


def _job(job: Job, step: StepTime) -> dict[str, object]:
    return {
        "parameters": job.parameters,
        "trained_parameters": job.trained,
        "workload": job.workload.value,
        "precision": job.precision,
        "optimizer": job.optimizer if job.trained else None,
        "lora_rank": job.lora_rank,
        "step_seconds": job.step_seconds,
        "step_source": step.words,
        "same_total_batch": job.same_total_batch,
        "heads": job.heads,
        "gpus": job.gpus,
    }


def _memory(memory: Memory) -> dict[str, object]:
    return {
        "parts": {part.what: part.size_bytes for part in memory.parts},
        "needed_bytes": memory.needed_bytes,
        "gpu_usable_bytes": memory.usable_bytes,
        "gpu_total_bytes": memory.total_bytes,
        "fits": memory.fits,
        "fewest_gpus": memory.fewest_gpus,
        "missing_bytes": memory.missing_bytes,
    }


def _group(exchange: Exchange) -> dict[str, object]:
    path, efficiency = exchange.path, exchange.efficiency
    link = path.slowest
    return {
        "gpus": [gpu.gpu for gpu in path.gpus],
        "access": path.access.value,
        "level": path.level or None,
        "refused": path.refused or None,
        "slowest_link": None if link is None else {"of": link.owner, "link": link.words, "line_rate": link.line_rate},
        "bandwidth": path.bandwidth,
        "sharded": exchange.sharded,
        "exchange_bytes": exchange.moved_bytes,
        "exchange_seconds": exchange.seconds,
        "step_seconds": exchange.step_seconds,
        "efficiency": None if efficiency is None else efficiency[0],
        "efficiency_overlapped": None if efficiency is None else efficiency[1],
        "speedup": None if efficiency is None or exchange.sharded else efficiency[0] * exchange.gpus,
        "break_even_step_seconds": None if exchange.sharded else exchange.break_even_seconds,
        "worthwhile_step_seconds": None if exchange.sharded else exchange.worthwhile_seconds,
    }
