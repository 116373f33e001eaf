"""A compressed page is one gzip file, to every reader."""

import gzip
import zlib

import pytest
from tests.parts import some
from tests.rig import rig

from gpu_triage_simulator import load_scenario

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("accept", some(["", "application/openmetrics-text"], usual=[""]))
def test_a_compressed_page_is_the_plain_page_whatever_changed_since_the_last(accept: str) -> None:
    with rig(load_scenario("dual-a10")) as running:
        for seconds in (1, 1, 1, 3, 5, 30):
            running.run(seconds)
            packed = running.exposition.page(accept, (), gzipped=True).body
            plain = running.exposition.page(accept, (), gzipped=False).body
            # Nothing is left over: some clients read the first member only.
            reader = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
            unpacked = reader.decompress(packed)
            assert (reader.eof, reader.unused_data) == (True, b"")

            def told(page: bytes) -> list[bytes]:
                # The two are made one after the other: this process has used more CPU time in between.
                return [line for line in page.splitlines() if not line.startswith(b"process_")]

            assert told(unpacked) == told(plain)
            packed, plain = (running.exposition.page(accept, ("gpu_up",), gzipped=each).body for each in (True, False))
            assert gzip.decompress(packed) == plain
