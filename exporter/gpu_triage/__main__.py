"""Entry point for ``python -m gpu_triage`` and the gpu-triage command."""

import os
import signal
import sys
from collections.abc import Callable
from typing import Any

from gpu_triage.driver.crash import explained, report_crashes


def main() -> None:
    report_crashes()
    _end_at_sigterm_as_first_process()
    explained(load())


def load() -> Callable[[], None]:
    _load_asyncio_without_openssl()
    from gpu_triage.cli.main import main as run  # noqa: PLC0415 - after asyncio

    return run


def _end_at_sigterm_as_first_process() -> None:
    """Let a container end that is stopped while it starts: the kernel drops signals that process 1 doesn't handle."""
    if os.getpid() == 1:
        signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))


def _load_asyncio_without_openssl() -> None:
    """Import asyncio without ssl, which takes 4 MiB: asyncio supports Pythons built without ssl, so hide it.

    The exporter's own TLS doesn't use asyncio's, and imports ssl only for HTTPS.
    """
    if "asyncio" in sys.modules or "ssl" in sys.modules:
        return
    modules: dict[str, Any] = sys.modules
    modules["ssl"] = None
    try:
        import asyncio  # noqa: F401, PLC0415 - while ssl is hidden
    finally:
        del modules["ssl"]


if __name__ == "__main__":
    main()
