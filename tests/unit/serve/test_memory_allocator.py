from __future__ import annotations

import os
import subprocess
import sys

import pytest

from gpu_triage.serve.process_settings import keep_memory_flat

THREADS = 4
SCRIPT = """
import ctypes, re, sys, threading
if sys.argv[1] == "flat":
    from gpu_triage.serve.process_settings import keep_memory_flat
    assert keep_memory_flat()
libc = ctypes.CDLL(None)
libc.malloc.restype = ctypes.c_void_p
barrier = threading.Barrier(int(sys.argv[2]))
def work():
    libc.malloc(4000)
    barrier.wait()
threads = [threading.Thread(target=work) for _ in range(int(sys.argv[2]))]
for thread in threads: thread.start()
for thread in threads: thread.join()
libc.malloc_stats()
"""


def arenas(how: str) -> int:
    """How many arenas a process has after several threads allocated at the same time."""
    environment = {name: value for name, value in os.environ.items() if name != "MALLOC_ARENA_MAX"}
    command = [sys.executable, "-c", SCRIPT, how, str(THREADS)]
    answer = subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=60)
    return answer.stderr.count("Arena ")


def test_threads_share_one_arena() -> None:
    assert arenas("default") > 1, "what this is for"
    assert arenas("flat") == 1


def test_a_c_library_without_arenas_is_left_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ctypes.CDLL", lambda _name: object())
    assert not keep_memory_flat()
