"""What a job's NCCL reports about itself: ranks that are gone or late, and how many operations it launches.

Each process with NCCL 2.24 or later has a RAS thread. Those of a job are connected, and each answers a client on
localhost for all of them. Only JSON (NCCL 2.28.7 and later) names the ranks that are well, and counts their operations.
Sources: https://github.com/NVIDIA/nccl/tree/v2.30.7-1/src/ras (``client.cc``, ``client_support.cc``,
``collectives.cc``), https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/troubleshooting/ras.html
"""

import json
import re
import socket
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, Any, Final, NamedTuple

from gpu_triage.driver.kernel.files import HostInquiry
from gpu_triage.errors import HostReadFailed
from gpu_triage.options.config import Config
from gpu_triage.options.values import split_listen_address
from gpu_triage.read.metrics.contract import HostCollector, HostRound
from gpu_triage.read.metrics.metric import ANY, Tier, host_counter, host_gauge, host_info
from gpu_triage.read.metrics.rendering import each

ACTIVE, LATE, UNRESPONSIVE, DEAD = STATES = ("active", "late", "unresponsive", "dead")

_SOURCE: Final = "NCCL's RAS at --nccl.ras-address"

GPU_NCCL_COMMUNICATORS = host_gauge(
    "Communicators of the NCCL job that answers at the address. As for all gpu_nccl metrics, the host of the lowest "
    "rank that responds publishes those of the whole job; before NCCL 2.28.7, every host of the job does.",
    labels=("address",),
    source=_SOURCE,
)
GPU_NCCL_RANKS = host_gauge(
    "GPUs of the NCCL job by state ({state}). Dead: NCCL has not reached the process for a minute. Unresponsive: it "
    "did not reach it now. Late: others launched a collective operation that this one has not launched for 30 seconds "
    "or more, while it does not wait for another one itself; neither active nor late are published if NCCL does not "
    "name those.",
    labels={"address": ANY, "state": STATES},
    source=_SOURCE,
)
GPU_NCCL_AWAITED_RANK_INFO = host_info(
    "A rank that the NCCL job waits for: its state as in gpu_nccl_ranks, its number in the largest communicator that "
    "it is in, and its host's address, its PID there and its GPU's NVML index. At most 16 for each address; rank and "
    "communicator are empty if NCCL does not report them.",
    labels=("address", "state", "communicator", "rank", "rank_host", "rank_pid", "rank_gpu"),
    source=_SOURCE,
)
GPU_NCCL_OPERATIONS_TOTAL = host_counter(
    "Collective operations that every rank of the communicator that responds has launched since its creation, without "
    "send and receive and without those that a CUDA graph repeats. For the 16 largest communicators, with NCCL 2.28.7 "
    "and later.",
    labels=("address", "communicator"),
    source=_SOURCE,
)

MOST: Final = 16
"""Series of one address that name a rank, and those that name a communicator."""
MOST_BYTES: Final = 8 << 20
"""About 12,000 ranks, counted once for each communicator that they are in."""
LATE_SECONDS: Final = 30.0
"""A step takes less, and two rounds of the slow tier are further apart."""
LONGEST_PAUSE: Final = 10
"""Rounds after which a host that does not publish queries the job again, at most."""
_DEADLINE_SHARE: Final = 0.8
"""Of a round's deadline, so that a job that answers too slowly is an error of its own name."""
_ATTEMPTS: Final = 3
PROMPT_SECONDS: Final = 1.0
"""A thread that runs greets at once. All processes of a host share the port, one that is stopped too: ask another."""
_REQUEST: Final = b"CLIENT PROTOCOL 2\nTIMEOUT 1\nSET FORMAT json\nVERBOSE STATUS\n"
"""The timeout is that of each hop between processes. Before 2.28.7, NCCL rejects the format and answers in text."""

_NO_COMMA: Final = re.compile(r'("nvml_dev": -?[0-9]{1,9})(\s+"status")')
"""NCCL 2.28.7 to 2.28.9 omit the comma in the entry of a rank that is missing."""
_LABEL: Final = re.compile(r"[0-9A-Fa-f.:]{1,45}")
"""An address or a number. NCCL writes ``unknown`` and -1 if it has no data on a process."""

# The text: tables, the processes that are lost, and paragraphs about communicators.
_TOTAL: Final = re.compile(r"^ *(?:[0-9]+ +)*([0-9]{1,9})$", re.MULTILINE)
_GROUP: Final = re.compile(
    r"^ *[0-9]+ +([0-9]{1,9}) +[0-9]+ +[0-9-]+ +[1-9][0-9]* +[0-9]+ +[A-Z]+ +[A-Z,]+$", re.MULTILINE
)
_LOST: Final = re.compile(r"^(INCOMPLETE|DEAD)\n((?:  .*\n)*)", re.MULTILINE)
_LOST_STATES: Final = {"INCOMPLETE": UNRESPONSIVE, "DEAD": DEAD}
_PROCESS: Final = re.compile(
    r"Process ([0-9]{1,10}) on node ([0-9A-Fa-f.:]{1,45}) managing GPUs? ([0-9,]{1,200})(?: \(NVML ([0-9,]{1,200})\))?"
)
_ABOUT: Final = re.compile(r"^#[0-9]+-[0-9]+ \(([0-9a-f]{16})\) [A-Z]+\n((?:\n?  .*\n)*)", re.MULTILINE)
_COUNTS: Final = re.compile(r"ranks have different (.{0,40}?)operation counts\n((?:.+\n)*)")
_NEXT_COUNT: Final = re.compile(r"\n(?=.* launched )")
_COUNT: Final = re.compile(r" launched (?:up to operation ([0-9]{1,20})|any operations)")
_RANK: Final = re.compile(
    r"^ *Rank ([0-9]{1,9}) .*-- GPU ([0-9]{1,3})(?: \(NVML ([0-9]{1,3})\))? "
    r"managed by process ([0-9]{1,10}) on node ([0-9A-Fa-f.:]{1,45})$",
    re.MULTILINE,
)


class RankGpu(NamedTuple):
    """A GPU of a process, as in the last labels of gpu_nccl_awaited_rank_info."""

    host: str
    pid: str
    gpu: str


@dataclass(slots=True)
class Status:
    """An answer of NCCL's RAS. The text lists only outliers among the ranks, and not who responded."""

    communicators: int = 0
    gpus: int = 0
    ranks: dict[RankGpu, tuple[str, str]] = field(default_factory=dict)  # communicator, and number in it
    lost: dict[RankGpu, str] = field(default_factory=dict)  # state of those that did not respond
    # GPUs by how many operations they launched, by communicator; in text, by kind of operation too, where they differ
    launched: dict[str, dict[int, set[RankGpu]]] = field(default_factory=dict)
    hosts: tuple[str, ...] | None = None  # that responded, by lowest rank; None if unknown


@dataclass(frozen=True, slots=True)
class JobReading:
    """The job at one address: ranks by state, labels of those it waits for, operations by communicator."""

    address: str
    communicators: Annotated[int, GPU_NCCL_COMMUNICATORS]
    ranks: Annotated[Mapping[str, int], GPU_NCCL_RANKS]
    awaited: Annotated[Mapping[tuple[str, ...], int], GPU_NCCL_AWAITED_RANK_INFO]
    operations: Annotated[Mapping[str, int], GPU_NCCL_OPERATIONS_TOTAL]


class JobReader:
    """Queries one address; remembers since when each communicator has not advanced, and when to query again."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._pause = 0
        self._since: dict[str, tuple[int, float]] = {}  # lowest count of each communicator, and its first second
        self._operations: dict[str, int] = {}

    def read(self, now: float, seconds: float) -> JobReading | None:
        """Ask for at most so many seconds; None without a job, and while another host publishes it.

        The n-th host after that one queries it every 2^n rounds, and takes over if those before it stop responding.
        Raises HostReadFailed without a valid answer in time.
        """
        self._pause -= 1
        if self._pause > 0:
            return None
        answer = ask(self._address, seconds)
        if answer is None:
            return None
        status = parse(answer)
        place = next((place for place, host in enumerate(status.hosts or ()) if _is_own(host)), 0)
        self._pause = min(2**place, LONGEST_PAUSE)
        return None if place else self._judged(status, now)

    def _judged(self, status: Status, now: float) -> JobReading:
        late = self._late(status, now)
        named = sorted(late or (), key=lambda gpu: int(status.ranks[gpu][1]))
        states = status.lost | dict.fromkeys(named, LATE)
        ranks = Counter({ACTIVE: max(0, status.gpus - len(states))}) + Counter(states.values())
        awaited = [(state, *status.ranks.get(gpu, ("", "")), *gpu) for gpu, state in states.items()]
        counted = [] if status.hosts is None else list(status.launched.items())[:MOST]
        # They must not go back when a rank that launched fewer responds again.
        self._operations = {name: max(min(counts), self._operations.get(name, 0)) for name, counts in counted}
        return JobReading(
            self._address,
            status.communicators,
            {state: ranks[state] for state in (STATES if late is not None else (UNRESPONSIVE, DEAD))},
            dict.fromkeys(awaited[:MOST], 1),
            self._operations,
        )

    def _late(self, status: Status, now: float) -> set[RankGpu] | None:
        """Ranks for which others wait in communicators that do not advance, unless they wait in another one.

        None if the text does not list some of them, because they are not a minority.
        """
        before, self._since = self._since, {}
        behind, ahead, listed = set[RankGpu](), set[RankGpu](), True
        for name, launched in status.launched.items():
            lowest = min(launched)
            known = before.get(name)
            self._since[name] = known if known is not None and known[0] == lowest else (lowest, now)
            if now - self._since[name][1] >= LATE_SECONDS and len(launched) > 1:
                listed &= bool(launched[lowest])
                behind |= launched[lowest]
                ahead = ahead.union(*(gpus for count, gpus in launched.items() if count > lowest))
        return (behind - ahead or behind) if listed else None


def _is_own(host: str) -> bool:
    """Whether an IP address is this host's: the kernel binds a socket to no other."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as bound:
            bound.bind((host, 0))
    except OSError:
        return False
    return True


def ask(address: str, seconds: float) -> str | None:
    """What the RAS thread at an address answers; None without one. HostReadFailed: timeout, io_error, too_large."""
    ends_at, attempt = time.monotonic() + seconds, 0
    while True:
        answer, attempt = bytearray(), attempt + 1
        try:
            prompt = min(PROMPT_SECONDS, seconds)
            with socket.create_connection(split_listen_address(address), prompt) as connection:
                connection.sendall(_REQUEST)
                while part := connection.recv(1 << 16):
                    answer += part
                    if len(answer) > MOST_BYTES:
                        raise HostReadFailed("too_large", address, f"more than {MOST_BYTES} bytes")
                    connection.settimeout(max(0.0, ends_at - time.monotonic()))
            return answer.decode("utf-8", "replace")
        except ConnectionRefusedError:
            return None
        except OSError as error:
            if attempt == _ATTEMPTS or time.monotonic() >= ends_at:
                reason = "timeout" if isinstance(error, TimeoutError | BlockingIOError) else "io_error"
                raise HostReadFailed(reason, address, str(error)) from error


def parse(answer: str) -> Status:
    """Parse an answer to _REQUEST: its first lines, and a document in JSON or text; else HostReadFailed (malformed)."""
    start = answer.find("\n{")
    try:
        return _parse_text(answer) if start < 0 else _parse_json(json.loads(_NO_COMMA.sub(r"\1,\2", answer[start:])))
    except (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise HostReadFailed("malformed", "the answer of NCCL's RAS", repr(error)[:200]) from error


def _parse_json(document: Any) -> Status:
    """Parse the document; unknown keys are ignored."""
    status, hosts = Status(), dict[str, None]()
    for communicator in sorted(document["communicators"], key=lambda one: (-one["size"], one["hash"])):
        name = communicator["hash"].removeprefix("0x").zfill(16)[:16]
        launched: dict[int, set[RankGpu]] = {}
        for entry, gpu in _placed(communicator["ranks"]):
            status.ranks.setdefault(gpu, (name, str(entry["rank"])))
            hosts[gpu.host] = None
            if not any(entry["status"].get(flag) for flag in ("finalize_called", "destroy_flag", "abort_flag")):
                count = int(sum(entry["collective_counts"].values())) % (1 << 64)  # as NCCL counts
                launched.setdefault(count, set()).add(gpu)
        for entry, gpu in _placed(communicator["missing_ranks"]):
            dead = entry["status"].get("considered_dead")
            if dead or entry["status"].get("unresponsive"):  # else it left this communicator
                status.ranks.setdefault(gpu, (name, str(entry["rank"])))
                status.lost[gpu] = DEAD if dead else UNRESPONSIVE
        if launched:
            status.communicators += 1  # several may have one hash, and differ in the secondary one
            status.launched[name] = launched
    status.gpus, status.hosts = len(status.ranks), tuple(hosts)
    return status


def _placed(entries: Any) -> list[tuple[Any, RankGpu]]:
    """Entries of ranks, by rank, and where they run; without those that NCCL has no such data on."""
    placed = []
    for entry in entries:
        gpu = RankGpu(str(entry["host"]), str(entry["pid"]), str(entry["nvml_dev"]))
        if all(map(_LABEL.fullmatch, (*gpu, str(entry["rank"])))):
            placed.append((entry, gpu))
    return sorted(placed, key=lambda one: int(one[0]["rank"]))


def _parse_text(text: str) -> Status:
    """Parse what NCCL 2.24 to 2.30 write alike."""
    if "\nWarnings\n" not in text:
        raise ValueError("no end")  # the last section, which may be empty
    status = Status(sum(map(int, _GROUP.findall(text))), int(_TOTAL.findall(text.partition("\nCommunicators")[0])[-1]))
    for title, processes in _LOST.findall(text):
        for pid, host, gpus, by_nvml in _PROCESS.findall(processes):
            status.lost |= {RankGpu(host, pid, gpu): _LOST_STATES[title] for gpu in (by_nvml or gpus).split(",")}
    for name, paragraph in _ABOUT.findall(text):
        for gpu, rank in _listed(paragraph):
            status.ranks.setdefault(gpu, (name, rank))
        for kind, counts in _COUNTS.findall(paragraph):
            launched = status.launched[f"{name} {kind}"] = {}
            for part in _NEXT_COUNT.split(f"\n{counts}")[1:]:
                count = _COUNT.search(part)
                launched[int(count[1] or 0) if count else 0] = {gpu for gpu, _ in _listed(part)}
    return status


def _listed(lines: str) -> Iterator[tuple[RankGpu, str]]:
    for rank, gpu, by_nvml, pid, host in _RANK.findall(lines):
        yield RankGpu(host, pid, by_nvml or gpu), rank


def _reader(config: Config) -> Callable[[HostRound], tuple[JobReading, ...]]:
    jobs = tuple(map(JobReader, config.nccl_ras_address))
    seconds = config.sample_deadline_seconds * _DEADLINE_SHARE / max(1, len(jobs))

    def read(round_: HostRound) -> tuple[JobReading, ...]:
        inquiry = HostInquiry(round_.failures)
        readings = [inquiry.ask(partial(job.read, round_.at.monotonic, seconds)) for job in jobs]
        inquiry.finish()
        return tuple(reading for reading in readings if reading is not None)

    return read


NCCL_RAS = HostCollector(
    about="NCCL jobs: ranks that are gone or late, operations",
    tier=Tier.SLOW,
    reader=_reader,
    render=each("address"),
    needs="nccl_ras_address",
    own_lane=True,
)
