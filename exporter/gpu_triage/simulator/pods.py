"""The pods of a simulated host: what its kubelet would say."""

from __future__ import annotations

from collections.abc import Collection

from gpu_triage.machine import Moment, Workload
from gpu_triage.simulator.scenario import Scenario


class SimulatedPods:
    """Who holds which GPU, as the scenario's processes say; what is on a MIG instance has no pod here."""

    def __init__(self, scenario: Scenario) -> None:
        self._holders: dict[str, set[Workload]] = {}
        for process in scenario.processes:
            if process.pod is not None and process.gi is None:
                workload = Workload(process.pod.name, process.pod.namespace, process.pod.container)
                replaced = (card.gpu for card in scenario.replacements if card.index == process.gpu)
                for gpu in (scenario.gpus[process.gpu], *replaced):
                    self._holders.setdefault(gpu.uuid, set()).add(workload)

    def refresh(self, at: Moment) -> None:
        """As PodNames; nothing changes."""

    def holders(self, devices: Collection[str], at: Moment) -> frozenset[Workload]:  # noqa: ARG002 - PodNames
        """As PodNames."""
        return frozenset().union(*(self._holders.get(device, ()) for device in devices))
