"""A simulated GPU host: a Machine made from a scenario file, for demonstrations, fire drills and tests.

It replaces the NVML library below pynvml and the kernel's sysfs, procfs and log, so that all code above them runs
unchanged.
"""

from gpu_triage_simulator.clocks import START_OF_TIME, FastClock, VirtualClock
from gpu_triage_simulator.describe import describe_scenario
from gpu_triage_simulator.scenario import Expectation, Scenario
from gpu_triage_simulator.scenario_file import ScenarioSummary, list_scenarios, load_scenario
from gpu_triage_simulator.session import SimulatedMachine, simulated_machine

__all__ = [
    "START_OF_TIME",
    "Expectation",
    "FastClock",
    "Scenario",
    "ScenarioSummary",
    "SimulatedMachine",
    "VirtualClock",
    "describe_scenario",
    "list_scenarios",
    "load_scenario",
    "simulated_machine",
]
