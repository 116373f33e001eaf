"""GPU host: CPUs, storage, network, kernel log and jobs of the machines around the GPUs."""

from dashboards.board import Board, Row
from dashboards.host_resources import network, processors, storage
from dashboards.host_software import jobs, kernel
from dashboards.judgment import findings
from dashboards.panels import Size


def board() -> Board:
    return Board(
        uid="gpu-triage-host",
        title="GPU host",
        description="The machines around the GPUs: CPUs, storage, memory, network, the kernel log, and the limits of "
        "jobs. Read it after the diagnosis, which says whether a GPU waits for its host at all.",
        since="3h",
        one_host=True,
        runbooks=True,
        rows=(Row("", findings(Size(24, 7))), processors(), storage(), kernel(), network(), jobs()),
    )
