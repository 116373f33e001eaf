"""Simulated hosts to give `gpu-triage advise` a job on, and its answers."""

import re
from dataclasses import fields
from functools import cache

import click

from gpu_triage.cli.advise.command import advise_command
from gpu_triage.cli.advise.recommendation import Job, Recommendation, recommend
from gpu_triage.cli.main import group
from gpu_triage.cli.measure import measure
from gpu_triage.documents import parse_toml
from gpu_triage.judge.host_judge import Judgment
from gpu_triage.options.config import Config
from gpu_triage_simulator import Scenario, VirtualClock, load_scenario, simulated_machine
from gpu_triage_simulator.scenario_file import SCENARIOS, read_scenario

HOSTS = {
    "2 RTX 4070 Ti": ("rtx-4070-ti-super", 0.0),  # no peer access
    "2 RTX 4070 Ti, x4": ("rtx-4070-ti-super", 0.0),  # the second card in a slot with 4 lanes
    "2 RTX 4070 Ti, switch": ("rtx-4070-ti-super", 0.0),  # both behind one PCIe switch
    "4 V100": ("v100-old-driver", 0.0),  # NVLink without a switch
    "8 H100": ("h100-8", 0.0),  # NVSwitch
    "8 H100, 2 sick": ("h100-8-bad-night", 1800.0),  # GPU 3 is too hot, GPU 5 lost lanes
    "2 A10": ("idle-downshift", 0.0),  # links at generation 1 at rest
    "2 A10, 1 sick": ("dual-a10", 3600.0),  # GPU 0 lost lanes
    "2 A10, 1 lost": ("lost-before-start", 0.0),
    "2 A10, starved": ("sick-host", 600.0),  # the file server does not respond
    "2 H100, 1 MIG": ("h100-mig", 0.0),
}

CHANGED = {
    "2 RTX 4070 Ti, x4": (r'(ports = \["0000:00:01.1"\], generation = 4, width = )16', r"\g<1>4"),
    "2 RTX 4070 Ti, switch": (
        r'bus_id = "0000:0([12]):00.0", node = -1, ports = \["0000:00:01.[01]"\]',
        r'bus_id = "0000:1\1:00.0", node = -1, ports = ["0000:00:01.0", "0000:02:00.0", "0000:03:0\1.0"]',
    ),
}
"""Hosts that no shipped scenario has: what to replace in theirs."""

NARROW = 'at = 0\ngpu = 0\neffect = { kind = "link", width = 4 }'


def job(options: str) -> Job:
    # The command keeps its help option, with the names that the first context has: those of the program's.
    program = click.Context(group, **group.context_settings)
    context = advise_command.make_context("advise", options.split(), parent=program)
    return Job(**{field.name: context.params[field.name] for field in fields(Job)})


@cache
def look_at(host: str) -> Judgment:
    name, at_seconds = HOSTS[host]
    if host not in CHANGED:
        return look(load_scenario(name), at_seconds)
    text, count = re.subn(*CHANGED[host], (SCENARIOS / f"{name}.toml").read_text())
    assert count
    return look(read_scenario(parse_toml(text.encode(), host), host), at_seconds)


def look(scenario: Scenario, at_seconds: float = 0.0) -> Judgment:
    with simulated_machine(scenario, clock=VirtualClock(), starting_at=at_seconds) as simulated:
        return measure(simulated.machine, Config(), 3.0)


def advice(judgment: Judgment, options: str) -> Recommendation:
    return recommend(job(options), judgment.host, judgment.report)
