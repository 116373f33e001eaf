"""The page's style sheet, script and icons, and the Content-Security-Policy that allows only these."""

import base64
import hashlib
from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from gpu_triage.documents import packaged
from gpu_triage.judge.findings.verdicts import CLASS_COLORS, TONE_COLORS

_MIDDLE_LUMINANCE: Final = 0.179
"""Luminance with equal contrast to black and white (https://www.w3.org/TR/WCAG22/#dfn-contrast-ratio)."""


def ink_on(color: str) -> str:
    """Black or white, whichever has the higher contrast to this color, ``#rrggbb``; at least 4.5:1 for any color."""
    red, green, blue = ((int(color[place : place + 2], 16) / 255) ** 2.2 for place in (1, 3, 5))
    return "#000000" if 0.2126 * red + 0.7152 * green + 0.0722 * blue > _MIDDLE_LUMINANCE else "#ffffff"


STYLE: Final = packaged(__package__, "page.css") + "".join(
    f".c-{name} {{ --fill: {color}; --on: {ink_on(color)}; fill: {color}; }}\n" for name, color in CLASS_COLORS.items()
)
"""With a rule for each bottleneck class, because the policy forbids style attributes."""

SCRIPT: Final = packaged(__package__, "page.js")


def _icon(color: str) -> str:
    return (
        "data:image/svg+xml,%3Csvg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 8 8'%3E"
        f"%3Ccircle cx='4' cy='4' r='4' fill='%23{color.removeprefix('#')}'/%3E%3C/svg%3E"
    )


ICONS: Final[Mapping[str, str]] = MappingProxyType({tone: _icon(color) for tone, color in TONE_COLORS.items()})
"""Favicon, a dot, by the tone of a verdict."""


def source_hash(text: str) -> str:
    """The CSP hash of an embedded style sheet or script."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def policy(sheet: str, script: str = "") -> bytes:
    """The Content-Security-Policy of a page: its own style sheet and script, by hash, its icon, and its own server."""
    scripts = f"script-src '{source_hash(script)}'; connect-src 'self'; " if script else ""
    return (
        f"default-src 'none'; style-src '{source_hash(sheet)}'; {scripts}img-src data:; base-uri 'none'; "
        "form-action 'none'; frame-ancestors 'none'"
    ).encode()


POLICY: Final = policy(STYLE, SCRIPT)
"""Of the status page; only it has a script, which queries its server."""
