"""Connections of clients end in time, whatever state they are in."""

from __future__ import annotations

import http.client
import threading
import time

import pytest

from gpu_triage.cli.bounded_http import ended_after


def test_a_connection_that_is_not_made_in_time_is_a_timeout_and_no_thread_fails() -> None:
    failed: list[threading.ExceptHookArgs] = []
    before, threading.excepthook = threading.excepthook, failed.append
    try:
        connection = http.client.HTTPConnection("127.0.0.1", 9)
        with pytest.raises(TimeoutError), ended_after(connection, 0.05):
            time.sleep(0.2)
    finally:
        threading.excepthook = before
    assert failed == []
