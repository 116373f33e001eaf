"""Plays several acts at once, each before servers of its own, and counts what is told as a pager does."""

import json
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from deploy.demo.pace import paced_alertmanager
from deploy.demo.pager import Alert, Notification, pager
from deploy.demo.processes import Server
from deploy.demo.stack import SCRAPE_INTERVAL, Stack, find_programs, servers, write_rules
from tests.e2e.rehearsal.target import Host, Minutes, Script, record_all, replayed
from tests.listening import QuietHandler, QuietServer, listening, serving

from gpu_triage.alerting.settings import DEFAULTS, Settings

PAGER = "gpu-pager"
TICKETS = "gpu-tickets"


class Inbox:
    """What a webhook was told, in order."""

    def __init__(self) -> None:
        self._told: list[Notification] = []
        self._lock = threading.Lock()

    def add(self, notification: Notification) -> None:
        with self._lock:
            self._told.append(notification)

    def where(self, wanted: Callable[[Alert], bool], receiver: str | None = None) -> list[Notification]:
        """Those with an alert that is wanted, of one receiver or of all."""
        with self._lock:
            return [n for n in self._told if receiver in {None, n.receiver} and any(map(wanted, n.alerts))]


def summary(notifications: list[Notification]) -> str:
    return "\n".join(
        f"{n.receiver} {n.status}: "
        + ", ".join(f"{each.labels['alertname']} {each.status} {each.labels.get('gpu', '')}" for each in n.alerts)
        for n in notifications
    )


def opened(notifications: list[Notification]) -> int:
    """How many incidents a pager opens for these: a group that fires when its incident is not open."""
    count, open_now = 0, set()
    for each in notifications:
        if each.status == "firing" and each.group not in open_now:
            count += 1
            open_now.add(each.group)
        elif each.status == "resolved":
            open_now.discard(each.group)
    return count


def still_open(notifications: list[Notification]) -> list[str]:
    last = {each.group: each.status for each in notifications}
    return [group for group, status in last.items() if status == "firing"]


def never_resolved(notifications: list[Notification]) -> list[str]:
    """Alerts that were told to fire and never to have ended, by name, labels and all."""
    balance: Counter[str] = Counter()
    for notification in notifications:
        for each in notification.alerts:
            key = str(sorted(each.labels.items()))
            balance[key] = 1 if each.status == "firing" else 0
    return [key for key, state in balance.items() if state]


@dataclass(slots=True)
class Network:
    address: str  # to which Prometheus sends
    alertmanager: str = ""  # URL that it passes alerts on to
    cut: threading.Event = field(default_factory=threading.Event)

    def end(self) -> None:
        self.cut.set()

    def start(self) -> None:
        self.cut.clear()


@contextmanager
def between() -> Iterator[Network]:
    class Handler(QuietHandler):
        def respond(self) -> None:
            body = self.body()
            try:
                if network.cut.is_set():
                    raise ConnectionError
                request = urllib.request.Request(network.alertmanager + self.path, body, dict(self.headers.items()))
                with urllib.request.urlopen(request, timeout=5) as answer:
                    self.answer(answer.status)
            except OSError:
                self.answer(502)

    server = QuietServer(("127.0.0.1", 0), Handler)
    network = Network(f"127.0.0.1:{server.server_port}")
    with listening(server):
        yield network


_START_SECONDS = 7.0
"""Real time for the servers to start and to find their targets, before minute 0."""


@dataclass(frozen=True, slots=True)
class Act:
    """What one Prometheus watches."""

    pace: int  # how many times faster
    minutes: Minutes  # how long it lasts
    hosts: Sequence[Host]  # all targets
    # what is away from one minute to another; with both equal, a server is restarted
    away: tuple[Literal["prometheus", "alertmanager", "network"], Minutes, Minutes] | None = None
    delays: Mapping[str, str] = field(default_factory=dict)  # flags of Prometheus that are divided by the pace
    interval: str = SCRAPE_INTERVAL  # of scrapes and evaluations, as Prometheus writes it
    settings: Settings = DEFAULTS  # of the rules


@dataclass(slots=True)
class _Running:
    act: Act
    script: Script
    stack: Stack
    network: Network
    to_do: list[tuple[Minutes, Callable[[], None]]] = field(init=False)  # with the minute at which it is due

    def __post_init__(self) -> None:
        self.to_do = []
        if self.act.away is not None:
            what, begin, end = self.act.away
            parts: dict[str, Server | Network] = {
                "prometheus": self.stack.server,
                "alertmanager": self.stack.pager,
                "network": self.network,
            }
            part = parts[what]
            self.to_do = [(begin, part.end), (end, part.start)]

    def goes_on(self) -> bool:
        """Do what is due; whether its last minute is still to come."""
        while self.to_do and self.script.minute() >= self.to_do[0][0]:
            self.to_do.pop(0)[1]()
        return self.script.minute() < self.act.minutes


def rehearse(acts: Mapping[str, Act], directory: Path) -> dict[str, Inbox]:
    """What the webhook is told in each act; fails if Prometheus could not evaluate a rule at the end of one."""
    plays = {host.play for act in acts.values() for host in act.hosts if host.play}
    histories = record_all(plays, max(act.minutes for act in acts.values()) * 60)
    told = {name: Inbox() for name in acts}
    origin = time.time() + _START_SECONDS
    errors: set[str] = set()
    with ExitStack() as ending:
        running = []
        for name, act in acts.items():
            (directory / name).mkdir()
            replays = {
                (play, late): replayed(histories[play], origin + late * 60 / act.pace, act.pace)
                for play, late in {(host.play, host.late) for host in act.hosts if host.play}
            }
            running.append(
                _start(ending, act, Script(act.hosts, act.pace, origin, replays), told[name], directory / name)
            )
        while running:
            for each in list(running):
                if not each.goes_on():
                    errors.update(_rule_errors(each.stack.prometheus))
                    running.remove(each)
            time.sleep(0.05)
    assert errors == set(), "\n".join(errors)
    return told


def _start(ending: ExitStack, act: Act, script: Script, inbox: Inbox, directory: Path) -> _Running:
    write_rules(directory, act.pace, act.settings)
    network = ending.enter_context(between())
    routes = paced_alertmanager(act.pace, ending.enter_context(pager(inbox.add)))
    job = script.job(ending.enter_context(serving(script.answer)))
    playing = servers(
        directory,
        act.pace,
        [job],
        routes,
        find_programs(),
        delays=act.delays,
        alerts_to=network.address,
        interval=act.interval,
    )
    stack = ending.enter_context(playing)
    network.alertmanager = stack.alertmanager
    return _Running(act, script, stack, network)


def _rule_errors(prometheus: str) -> set[str]:
    with urllib.request.urlopen(f"{prometheus}/api/v1/rules", timeout=10) as answer:
        groups = json.load(answer)["data"]["groups"]
    return {
        f"{rule['name']}: {rule['lastError']}" for group in groups for rule in group["rules"] if rule.get("lastError")
    }
