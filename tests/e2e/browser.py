"""A headless Chromium, driven over its DevTools pipe: what it shows, and what it complains about."""

import base64
import json
import os
import select
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.e2e.processes import WAIT_SECONDS, end

_COMPLAINTS = ("Log.entryAdded", "Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Page.javascriptDialogOpening")


class Browser:
    """A running browser with one page."""

    def __init__(self, commands: int, answers: int) -> None:
        # What the page logged, threw, was refused or popped up since it was last opened.
        self.complaints: list[str] = []
        self._commands = commands
        self._answers = answers
        self._unread = b""
        self._last_id = 0
        self._events: list[str] = []
        self._session: dict[str, str] = {}
        target = self._call("Target.createTarget", url="about:blank")["targetId"]
        self._session = {"sessionId": self._call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]}
        for domain in ("Page", "Runtime", "Log"):
            self._call(f"{domain}.enable")

    def open(
        self, url: str, *, width: int = 1280, height: int = 900, dark: bool = False, media: str = "screen"
    ) -> None:
        """Show a page in a window, or on paper ("print"), of this size, and wait until it is loaded."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", media=media, features=[scheme])
        self._call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < height
        )
        self._load("about:blank")  # what is open now must not complain any more
        self.evaluate("1")
        self.complaints.clear()
        self._load(url)

    def hide_scrollbars(self) -> None:
        """Draw none from the next page on."""
        self._call("Emulation.setScrollbarsHidden", hidden=True)

    def _load(self, url: str) -> None:
        self._events.clear()
        self._call("Page.navigate", url=url)
        limit = time.monotonic() + WAIT_SECONDS
        while "Page.loadEventFired" not in self._events:
            self._take(limit)

    def evaluate(self, expression: str) -> Any:
        answer = self._call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def screenshot(self, path: Path, *, whole: bool = True) -> None:
        picture = self._call("Page.captureScreenshot", captureBeyondViewport=whole)["data"]
        path.write_bytes(base64.b64decode(picture))

    def _call(self, method: str, **parameters: Any) -> dict[str, Any]:
        self._last_id += 1
        command = {"id": self._last_id, "method": method, "params": parameters, **self._session}
        os.write(self._commands, json.dumps(command).encode() + b"\0")
        limit = time.monotonic() + WAIT_SECONDS
        while True:
            message = self._take(limit)
            if message.get("id") == self._last_id:
                assert "error" not in message, (method, message)
                answer: dict[str, Any] = message["result"]
                return answer

    def _take(self, limit: float) -> dict[str, Any]:
        while b"\0" not in self._unread:
            ready, _, _ = select.select([self._answers], [], [], max(0.0, limit - time.monotonic()))
            assert ready, "the browser does not answer"
            read = os.read(self._answers, 1 << 20)
            assert read, "the browser has ended"
            self._unread += read
        text, _, self._unread = self._unread.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        method = message.get("method", "")
        self._events.append(method)
        if method in _COMPLAINTS:
            self.complaints.append(json.dumps(message["params"]))
        return message


@contextmanager
def browser(chromium: Path, folder: Path) -> Iterator[Browser]:
    """A browser for the length of a ``with`` block."""
    for_it, commands = os.pipe()
    answers, from_it = os.pipe()
    flags = (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--disable-component-update",
        "--no-first-run",
        "--remote-debugging-pipe",
        f"--user-data-dir={folder / 'profile'}",
    )
    # It reads commands from descriptor 3 and answers on 4.
    shell = ["bash", "-c", f'exec "$@" 3<&{for_it} 4>&{from_it}', "chromium", str(chromium), *flags]
    with (folder / "chromium.log").open("wb") as log:
        process = subprocess.Popen(
            shell, stdin=subprocess.DEVNULL, stdout=log, stderr=log, pass_fds=(for_it, from_it), cwd=folder
        )
    os.close(for_it)
    os.close(from_it)
    try:
        yield Browser(commands, answers)
    finally:
        os.close(commands)  # which ends it
        os.close(answers)
        end(process)
