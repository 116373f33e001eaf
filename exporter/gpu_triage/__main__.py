"""``python -m gpu_triage``, and the command gpu-triage."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from gpu_triage.crash import explained, report_crashes


def main() -> None:
    """Run the command line and exit with its code."""
    report_crashes()
    explained(load())


def load() -> Callable[[], None]:
    """The command line; what every command needs is in memory from then on."""
    _load_asyncio_without_openssl()
    from gpu_triage.cli import main as run  # noqa: PLC0415 - after that

    return run


def _load_asyncio_without_openssl() -> None:
    """Python's asyncio loads ssl, 4 MiB, unless Python was built without it: here it finds none.

    The exporter's own TLS needs nothing of asyncio's, and loads ssl where HTTPS is served.
    """
    if "asyncio" in sys.modules or "ssl" in sys.modules:
        return
    modules: dict[str, Any] = sys.modules
    modules["ssl"] = None
    try:
        import asyncio  # noqa: F401, PLC0415 - see above
    finally:
        del modules["ssl"]


if __name__ == "__main__":
    main()
