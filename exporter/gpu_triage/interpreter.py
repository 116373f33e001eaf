"""How Python's interpreter is set for a daemon that is to answer within a millisecond."""

from __future__ import annotations

import gc
import sys
from typing import Final

_SWITCH_SECONDS: Final = 0.0001
"""How long a thread computes while another one waits for its turn. Python's own 5 ms would be the time a scrape takes
that comes in the middle of a round; switching this often costs nothing that can be measured."""


def answer_promptly() -> None:
    """Let a scrape interrupt the sampling, and garbage collections pass over what the program itself is made of.

    Call it when everything is loaded: what is there by then stays, some 200,000 objects, and to look through them takes
    tens of milliseconds in which nothing is answered.
    """
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.collect()
    gc.freeze()
