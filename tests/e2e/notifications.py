"""What a webhook was told, counted as a pager counts it: one incident for a group, open until the group is resolved."""

import threading
from collections import Counter
from collections.abc import Callable

from deploy.demo.pager import Alert, Notification

PAGER = "gpu-pager"
TICKETS = "gpu-tickets"


class Inbox:
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
