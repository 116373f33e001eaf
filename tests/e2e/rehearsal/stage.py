"""Plays several acts at once, each before servers of its own."""

from __future__ import annotations

import json
import time
import urllib.request
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from deploy.demo.paced_routes import paced_alertmanager
from deploy.demo.pager import pager
from deploy.demo.stack import Stack, find_programs, servers, write_rules
from tests.e2e.notifications import Inbox
from tests.e2e.rehearsal.late import RECEIVES, agent
from tests.e2e.rehearsal.replay import record_all, replayed
from tests.e2e.rehearsal.target import Host, Minutes, Script, serving

from gpu_triage.alerting.settings import DEFAULTS, Settings

_START_SECONDS = 7.0
"""Real time for the servers to start and to find their targets, before minute 0."""


@dataclass(frozen=True, slots=True)
class Act:
    """What one Prometheus watches."""

    pace: int  # how many times faster
    minutes: Minutes  # how long it lasts
    hosts: Sequence[Host]  # all targets
    restart_minute: Minutes | None = None  # when Prometheus is restarted; None for never
    # how much later than scraped everything arrives by remote write; None where Prometheus scrapes
    late_minutes: Minutes | None = None
    settings: Settings = DEFAULTS  # of the rules


@dataclass(slots=True)
class _Running:
    act: Act
    script: Script
    stack: Stack
    restarted: bool = False

    def goes_on(self) -> bool:
        """Do what is due; whether its last minute is still to come."""
        minute, due = self.script.minute(), self.act.restart_minute
        if due is not None and minute >= due and not self.restarted:
            self.stack.server.restart()
            self.restarted = True
        return minute < self.act.minutes


def rehearse(acts: Mapping[str, Act], directory: Path) -> dict[str, Inbox]:
    """What the webhook is told in each act; fails if Prometheus could not evaluate a rule at the end of one."""
    plays = {host.play for act in acts.values() for host in act.hosts}
    histories = record_all(plays, max(act.minutes for act in acts.values()) * 60)
    told = {name: Inbox() for name in acts}
    origin = time.time() + _START_SECONDS
    errors: set[str] = set()
    with ExitStack() as ending:
        running = []
        for name, act in acts.items():
            (directory / name).mkdir()
            replays = {host.play: replayed(histories[host.play], origin, act.pace) for host in act.hosts}
            running.append(
                _start(ending, act, Script(act.hosts, act.pace, origin, replays), told[name], directory / name)
            )
        while running:
            for each in list(running):
                if not each.goes_on():
                    errors.update(_rule_errors(each.stack.prometheus))
                    running.remove(each)
            time.sleep(0.05)
    assert errors == set()
    return told


def _start(ending: ExitStack, act: Act, script: Script, inbox: Inbox, directory: Path) -> _Running:
    write_rules(directory, act.pace, act.settings)
    routes = paced_alertmanager(act.pace, ending.enter_context(pager(inbox.add)))
    job, programs = script.job(ending.enter_context(serving(script.page))), find_programs()
    if act.late_minutes is None:
        stack = ending.enter_context(servers(directory, act.pace, [job], routes, programs))
    else:
        stack = ending.enter_context(servers(directory, act.pace, [], routes, programs, flags=[RECEIVES]))
        delay_seconds = act.late_minutes * 60 / act.pace
        ending.enter_context(
            agent(directory, act.pace, job, stack.prometheus, programs.prometheus, delay_seconds=delay_seconds)
        )
    return _Running(act, script, stack)


def _rule_errors(prometheus: str) -> set[str]:
    with urllib.request.urlopen(f"{prometheus}/api/v1/rules", timeout=10) as answer:
        groups = json.load(answer)["data"]["groups"]
    return {
        f"{rule['name']}: {rule['lastError']}" for group in groups for rule in group["rules"] if rule.get("lastError")
    }
