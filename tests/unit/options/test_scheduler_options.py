"""Options about who was given the GPUs, and the collectors that they would be of no use without."""

from __future__ import annotations

import pytest
from tests.command_line import config_from

from gpu_triage.errors import ConfigError
from gpu_triage.options.option_table import CollectorSwitch

SWITCHES = tuple(CollectorSwitch(name, "It.", default=True) for name in ("processes", "allocation", "other"))
SOCKET = {"GPU_TRIAGE_KUBERNETES_POD_RESOURCES_SOCKET": "/run/kubelet.sock"}
LOGS = {"GPU_TRIAGE_KUBERNETES_CONTAINER_LOGS": "/var/log/containers"}
JOBS = {"GPU_TRIAGE_SLURM_JOBS_DIRECTORY": "/run/gpu-triage/jobs"}
NO_PROCESSES = {"GPU_TRIAGE_COLLECTOR_PROCESSES": "false"}
NO_ALLOCATION = {"GPU_TRIAGE_COLLECTOR_ALLOCATION": "false"}


@pytest.mark.parametrize(
    "variables",
    [SOCKET | NO_PROCESSES, SOCKET | NO_ALLOCATION, LOGS | NO_ALLOCATION, JOBS | NO_PROCESSES, SOCKET | LOGS | JOBS],
)
def test_what_still_tells_something_may_be_asked(variables: dict[str, str]) -> None:
    config_from([], variables, SWITCHES)


@pytest.mark.parametrize(
    ("variables", "both"),
    [
        (SOCKET | NO_PROCESSES | NO_ALLOCATION, r"POD_RESOURCES_SOCKET.*COLLECTOR_PROCESSES.*COLLECTOR_ALLOCATION"),
        (LOGS | NO_PROCESSES, r"CONTAINER_LOGS.*COLLECTOR_PROCESSES"),
        (JOBS | NO_ALLOCATION, r"SLURM_JOBS_DIRECTORY.*COLLECTOR_ALLOCATION"),
    ],
)
def test_who_cannot_be_told_must_not_be_asked(variables: dict[str, str], both: str) -> None:
    with pytest.raises(ConfigError, match=rf"{both}.*leave one of them out"):
        config_from([], variables, SWITCHES)
