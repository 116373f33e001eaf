"""Parts that are compressed one by one are one gzip file, to every reader."""

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.parts import some
from tests.rig import rig

from gpu_triage.serve.exposition.page import deflated, gzip_of
from gpu_triage_simulator import load_scenario

pytestmark = pytest.mark.slow


@given(st.lists(st.binary(max_size=200), max_size=5))
def test_parts_are_one_gzip_member(parts: list[bytes]) -> None:
    packed = gzip_of(parts, [deflated(part) for part in parts])
    assert gzip.decompress(packed) == b"".join(parts)
    # Nothing is left over: some clients read the first member only.
    reader = zlib.decompressobj(wbits=zlib.MAX_WBITS | 16)
    assert reader.decompress(packed) == b"".join(parts)
    assert reader.eof
    assert reader.unused_data == b""


@pytest.mark.parametrize("accept", some(["", "application/openmetrics-text"], usual=[""]))
def test_a_compressed_page_is_the_plain_page_whatever_changed_since_the_last(accept: str) -> None:
    with rig(load_scenario("dual-a10")) as running:
        for seconds in (1, 1, 1, 3, 5, 30):
            running.run(seconds)
            packed = gzip.decompress(running.exposition.page(accept, (), gzipped=True).body)
            plain = running.exposition.page(accept, (), gzipped=False).body

            def told(page: bytes) -> list[bytes]:
                # The two are made one after the other: this process has used more CPU time in between.
                return [line for line in page.splitlines() if not line.startswith(b"process_")]

            assert told(packed) == told(plain)


def test_what_did_not_change_costs_few_bytes_more_than_compressed_as_a_whole() -> None:
    with rig(load_scenario("h100-8")) as running:
        running.run(6)
        packed = running.exposition.page("", (), gzipped=True).body
    assert len(packed) < 1.15 * len(gzip.compress(gzip.decompress(packed), 1))
