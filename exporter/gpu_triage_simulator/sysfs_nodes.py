"""NUMA nodes in the simulated sysfs: CPUs and clocks, distances, memory and memory controllers."""

from __future__ import annotations

from typing import Final

from gpu_triage_simulator import host_effects
from gpu_triage_simulator.host import SimulatedHost
from gpu_triage_simulator.scenario import Node, ScenarioHost, cpu_numbers

_ROOT = "devices/system/node"
_HIGHEST_KILOHERTZ: Final = 3_800_000


def node_files(machine: ScenarioHost) -> dict[str, str]:
    """Text of every node's files, by path below sysfs."""
    nodes = machine.node
    found = {f"{_ROOT}/online": f"0-{len(nodes) - 1}\n" if nodes[1:] else "0\n"}
    for number, node in enumerate(nodes):
        path = f"{_ROOT}/node{number}"
        distances = (_distance(node, other) for other in nodes)
        found |= {
            f"{path}/cpulist": f"{node.cpus}\n",
            f"{path}/distance": f"{' '.join(map(str, distances))}\n",
            f"{path}/meminfo": _meminfo(machine, number),
            # All allocations are local.
            f"{path}/numastat": "numa_hit 70000000\nnuma_miss 0\nnuma_foreign 0\n",
        }
    return found


def _distance(node: Node, other: Node) -> int:
    """Distance as reported by the firmware of an EPYC host."""
    if node is other:
        return 10
    return 12 if node.socket is not None and node.socket == other.socket else 32


def _meminfo(machine: ScenarioHost, number: int) -> str:
    """Memory is split evenly between the nodes."""
    gibibytes = {"MemTotal": machine.memory_gib, "MemFree": machine.memory_available_gib * 0.3}
    shares = {f"{name}:": int(total * 2**20 / len(machine.node)) for name, total in gibibytes.items()}
    return "".join(f"Node {number} {name:<16}{share:>12} kB\n" for name, share in shares.items())


def cpu_settings(host: SimulatedHost, seconds: float) -> dict[str, str]:
    """CPU frequency settings, one policy per node, and the clock source."""
    events = host.timeline.host(host_effects.CpuSettings)
    settings = next((each for event, each in events if event.active(seconds)), host_effects.CpuSettings())
    found = {
        "devices/system/clocksource/clocksource0/current_clocksource": f"{settings.clock_source}\n",
        "devices/system/cpu/isolated": f"{settings.isolated or ''}\n",
    }
    for node in host.scenario.machine.node:
        cpus = cpu_numbers(node.cpus)
        policy = f"devices/system/cpu/cpufreq/policy{cpus[0]}"
        found |= {
            f"{policy}/related_cpus": " ".join(map(str, cpus)) + "\n",
            f"{policy}/scaling_governor": f"{settings.governor}\n",
            f"{policy}/scaling_cur_freq": f"{round(_HIGHEST_KILOHERTZ * settings.frequency_ratio)}\n",
            f"{policy}/cpuinfo_max_freq": f"{_HIGHEST_KILOHERTZ}\n",
        }
        throttles = f"devices/system/cpu/cpu{cpus[0]}/thermal_throttle"
        found |= {f"{throttles}/{name}": "0\n" for name in ("package_throttle_count", "package_throttle_total_time_ms")}
    return found


def memory_controllers(host: SimulatedHost, seconds: float) -> dict[str, str]:
    """Memory controllers, one per node with one DIMM each, and their EDAC error counts."""
    found: dict[str, str] = {}
    for node in range(len(host.scenario.machine.node)):
        corrected = uncorrected = 0
        for event, errors in host.timeline.host(host_effects.MemoryErrors):
            if errors.node == node and seconds >= event.at:
                until = seconds if event.until is None else min(seconds, event.until)
                corrected += int(errors.corrected_per_hour * (until - event.at) / 3600)
                uncorrected += errors.uncorrected
        path = f"devices/system/edac/mc/mc{node}"
        found |= {
            f"{path}/mc_name": f"Skylake Socket#{node} IMC#0\n",
            f"{path}/ce_count": f"{corrected}\n",
            f"{path}/ue_count": f"{uncorrected}\n",
            f"{path}/dimm0/dimm_label": f"CPU_SrcID#{node}_MC#0_Chan#0_DIMM#0\n",
            f"{path}/dimm0/dimm_ce_count": f"{corrected}\n",
            f"{path}/dimm0/dimm_ue_count": f"{uncorrected}\n",
        }
    return found
