"""The steps of the playbook: which bottleneck classes and which alerts each of them asks about."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import yaml

RULES: Final = Path(__file__).resolve().parent.parent / "rules"
RUNBOOKS_URL: Final = "http://${exporter:raw}/runbooks"
"""Where the playbook and the runbooks are: every exporter serves them. `raw` keeps the port's colon."""


@dataclass(frozen=True, slots=True)
class Step:
    """One question of the playbook.

    Attributes:
        title: number and question, as the row and the tile have it.
        anchor: of its section in the playbook.
        rules: file of its alerts, in rules/; "" where it has none.
        classes: bottleneck classes that mean yes.
        judged_by: series without which the question has no answer.
        per_gpu: whether that series is a GPU's, not a host's.
        key_panel: title of the panel to look at first.
        decide: what to do when this step finds the cause.
    """

    title: str
    anchor: str
    rules: str
    classes: tuple[str, ...]
    judged_by: str
    per_gpu: bool
    key_panel: str
    decide: str

    @property
    def url(self) -> str:
        """Its section of the playbook."""
        return f"{RUNBOOKS_URL}/playbook#{self.anchor}"


SEEN: Final = Step(
    "0 Can you trust it?",
    "0-can-you-trust-what-you-see",
    "alerts-exporter.yml",
    (),
    "gpu_exporter_build_info",
    per_gpu=False,
    key_panel="Exporters that respond",
    decide="Repair the exporter or its scrape first: the panels below only show what it sees.",
)
SICK: Final = Step(
    "1 Sick?",
    "1-is-it-sick",
    "alerts-sick.yml",
    ("sick",),
    "gpu_bottleneck",
    per_gpu=True,
    key_panel="Health of each GPU",
    decide="Drain the host and follow the runbook of the alert; tuning a sick GPU wastes the night.",
)
HELD_BACK: Final = Step(
    "2 Held back?",
    "2-is-it-held-back",
    "alerts-held-back.yml",
    ("thermal", "power_brake", "power_cap", "clock_cap"),
    "gpu_throttle_active",
    per_gpu=True,
    key_panel="Time held back by heat",
    decide="Heat and power brake go to the machine room; a lowered limit goes to whoever set it.",
)
PATH: Final = Step(
    "3 Path broken?",
    "3-is-the-path-to-it-broken",
    "alerts-path.yml",
    ("pcie_link", "numa"),
    "gpu_pcie_link_expected_width",
    per_gpu=True,
    key_panel="PCIe link bandwidth, as a share of what it should be",
    decide="Move the job to another GPU and have the card, riser and slot inspected.",
)
STARVED: Final = Step(
    "4 Starved?",
    "4-is-it-starved",
    "alerts-starved.yml",
    ("memory", "storage", "cpu", "network"),
    "gpu_host_cpu_busiest_ratio",
    per_gpu=False,
    key_panel="GPUs waiting for their host",
    decide="Relieve the scarce resource; the GPUs themselves are fine.",
)
SOFTWARE: Final = Step(
    "5 Software?",
    "5-is-the-software-in-the-way",
    "alerts-software.yml",
    ("hung", "communication"),
    "gpu_sm_utilization_ratio",
    per_gpu=True,
    key_panel="Compute processes",
    decide="Talk to the job's owner: look for a hang, an imbalance, or ranks waiting for each other.",
)
TUNE: Final = Step(
    "6 GPU-bound?",
    "6-only-then-tune",
    "",
    ("compute",),
    "gpu_bottleneck",
    per_gpu=True,
    key_panel="SM activity",
    decide="Nothing is wrong with the machine: profile the job, or give it more GPUs.",
)
STEPS: Final = (SEEN, SICK, HELD_BACK, PATH, STARVED, SOFTWARE, TUNE)


def alerts_of(step: Step) -> tuple[str, ...]:
    """Names of its alerts, as the rules have them now."""
    if not step.rules:
        return ()
    groups = yaml.safe_load((RULES / step.rules).read_text(encoding="utf-8"))["groups"]
    alerts = [rule for group in groups for rule in group["rules"] if "alert" in rule]
    return tuple(sorted({rule["alert"] for rule in alerts if rule["labels"]["severity"] in COUNTED}))


COUNTED: Final = frozenset({"critical", "warning"})
"""Severities that make a step suspect; the others are context."""
