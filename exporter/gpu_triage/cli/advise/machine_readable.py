"""The answer as JSON; docs/advise.md describes the format."""

from __future__ import annotations

import json
from dataclasses import asdict

from gpu_triage.cli.advise.assumptions import ASSUMPTIONS
from gpu_triage.cli.advise.estimate import Estimate
from gpu_triage.cli.advise.recommendation import Recommendation
from gpu_triage.cli.advise.text import commands, headline


def as_json(answer: Recommendation) -> str:
    """Return the answer as JSON. Sizes are in bytes, times in seconds, shares 0-1; null is unknown."""
    document = {
        "format": "gpu-triage-advice",
        "version": 1,
        "job": asdict(answer.job),
        "choice": answer.decision.choice.value,
        "headline": headline(answer),
        "because": answer.decision.because,
        "gpus": answer.gpus,
        "other_gpus": answer.other_gpus,
        "fix_first": [
            {"code": each.check.code, "gpu": each.gpu, "measured": each.measured, "decision": each.advice.decision}
            for each in answer.first
        ],
        "left_out": [each._asdict() for each in answer.left_out],
        "notes": answer.notes,
        "groups": [_group(each) for each in answer.estimates],
        "try_it": tuple(commands(answer)),
        "assumptions": dict(ASSUMPTIONS),
    }
    return json.dumps(document, indent=2)


def _group(estimate: Estimate) -> dict[str, object]:
    path = estimate.path
    link = path.slowest
    return {
        "gpus": [gpu.gpu for gpu in path.gpus],
        "access": path.access.label,
        "level": path.level or None,
        "refused": path.refused or None,
        "slowest_link": None if link is None else {"of": link.owner, "link": link.words, "line_rate": link.line_rate},
        "bandwidth": path.bandwidth,
        "exchange_bytes": estimate.moved_bytes,
        "exchange_seconds": estimate.exchange_seconds,
        "fixed_seconds": path.access.fixed_seconds,
        "compute_seconds": estimate.compute_seconds,
        "speedup": estimate.speedup,
        "worthwhile_speedup": estimate.worthwhile_speedup,
        "worthwhile_step_seconds": estimate.worthwhile_seconds,
    }
