"""The sources of the web application, for tests of what is put before them."""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from gpu_triage.serve.messages import Answer, html

OPENMETRICS = "application/openmetrics-text; version=1.0.0; charset=utf-8"
VERDICT = Answer(200, b'{"verdict": "keep"}', "application/json")
LINES = Answer(200, b"host\tkeep\tgpu-7\t-\n")
PAGE = html(b"<!DOCTYPE html><p>Keep</p>", b"default-src 'none'")


class Gate:
    """Holds up whoever calls it until it is opened."""

    def __init__(self) -> None:
        self.reached, self.opened = threading.Event(), threading.Event()

    def __call__(self) -> None:
        self.reached.set()
        self.opened.wait(10)


@dataclass
class Host:
    """The source of a host where all is well, with what it was asked."""

    body: bytes = b"gpu_up 1\n"  # the metrics
    # called while a selection of metrics or a verdict is made; that takes as long as this does
    hold: Callable[[], object] = lambda: None
    # of each page of metrics: Accept, names, gzip
    asked: list[tuple[str, tuple[str, ...], bool]] = field(default_factory=list)
    scrapes: int = 0  # answered so far
    # dead, unready: what the probes are told
    dead: str | None = None
    unready: str | None = None
    given: Answer = VERDICT  # the verdict
    ordered: list[str] = field(default_factory=list)  # what was asked of the GPUs
    judged: list[str] = field(default_factory=list)  # what was asked of the status, in order
    broken: bool = False  # whether metrics and status page cannot be made

    def page(self, accept: str, names: tuple[str, ...], gzipped: bool) -> Answer:  # noqa: FBT001 - the contract's
        self.asked.append((accept, names, gzipped))
        if self.broken:
            raise RuntimeError("secret of the encoder")
        if names:
            self.hold()
        return Answer(200, self.body, OPENMETRICS)

    def scraped(self) -> None:
        self.scrapes += 1

    def alive(self) -> str | None:
        return self.dead

    def ready(self) -> str | None:
        return self.unready

    def status_page(self) -> Answer:
        self.judged.append("page")
        if self.broken:
            raise RuntimeError("secret of the judges")
        return PAGE

    def verdict(self, *, as_lines: bool) -> Answer:
        if as_lines:
            return LINES
        self.judged.append("verdict")
        self.hold()
        return self.given

    def release(self) -> None:
        self.ordered.append("release")

    def acquire(self) -> None:
        self.ordered.append("acquire")
