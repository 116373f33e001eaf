"""An agent that scrapes and sends what it scraped, and a way on which that takes minutes."""

import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import Any

import yaml
from deploy.demo.durations import paced_duration
from deploy.demo.processes import Server, free_port
from deploy.demo.stack import SHORTEST_SCRAPE_SECONDS
from tests.listening import QuietHandler, QuietServer, listening

RECEIVES = "--web.enable-remote-write-receiver"
"""The flag of a Prometheus that takes what agents send."""

_Request = tuple[float, bytes, Mapping[str, str]]


@contextmanager
def agent(
    directory: Path,
    pace: int,
    job: Mapping[str, Any],
    server: str,
    program: str,
    *,
    delay_seconds: float,
    interval: str,
) -> Iterator[None]:
    """A Prometheus agent that scrapes the job and sends it to a server, for the length of a ``with`` block."""
    interval = paced_duration(interval, pace, shortest_seconds=SHORTEST_SCRAPE_SECONDS)
    with _delayed(f"{server}/api/v1/write", delay_seconds) as url:
        config = {
            "global": {"scrape_interval": interval, "scrape_timeout": interval},
            "scrape_configs": [dict(job)],
            "remote_write": [{"url": url, "queue_config": {"batch_send_deadline": "500ms"}}],
        }
        (directory / "agent.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
        address = f"127.0.0.1:{free_port()}"
        command = [
            program,
            "--enable-feature=agent",
            f"--config.file={directory / 'agent.yml'}",
            f"--storage.agent.path={directory / 'agent'}",
            f"--web.listen-address={address}",
            "--scrape.discovery-reload-interval=1s",
        ]
        with Server("agent", command, directory, f"http://{address}/-/ready").running():
            yield


@contextmanager
def _delayed(url: str, delay_seconds: float) -> Iterator[str]:
    """An address whose requests arrive at `url` in their order, each so much later; the sender is not kept waiting."""
    taken: Queue[_Request | None] = Queue()

    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"

        def respond(self) -> None:
            taken.put((time.monotonic() + delay_seconds, self.body(), dict(self.headers)))
            self.answer(200)

    sender = threading.Thread(target=_pass_on, args=(taken, url))
    sender.start()
    try:
        with listening(QuietServer(("127.0.0.1", 0), Handler)) as address:
            yield f"http://{address}/"
    finally:
        taken.put(None)
        sender.join()


def _pass_on(taken: Queue[_Request | None], url: str) -> None:
    """Send on what was taken, each when it is due, until there is None."""
    while (request := taken.get()) is not None:
        due, body, headers = request
        time.sleep(max(0.0, due - time.monotonic()))
        kept = {name: text for name, text in headers.items() if name.lower() not in {"host", "content-length"}}
        urllib.request.urlopen(urllib.request.Request(url, body, kept), timeout=10).close()
