import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_triage.serve.messages import QueryError, Request, accepts_gzip, metric_names


@pytest.mark.parametrize(
    ("accept_encoding", "wanted"),
    [
        ("", False),
        ("gzip", True),
        ("GZIP", True),
        ("x-gzip", True),
        ("deflate, gzip ; q=0.1", True),
        ("gzip;q=0", False),
        ("gzip;q=0.000", False),
        ("gzip;q=0, *;q=1", False),
        ("*", True),
        ("*;q=0", False),
        ("identity", False),
        ("br;q=1.0, deflate", False),
        ("gzip;q=high", False),
        ("gzip;level=9", True),
        ("gzipped", False),
        ("," * 2000 + "gzip", True),
        ("," * 2048 + "gzip", False),
        ("gzip;q=2", False),
    ],
)
def test_gzip_is_read_by_its_weight(accept_encoding: str, *, wanted: bool) -> None:
    assert accepts_gzip(accept_encoding) is wanted


@given(st.text(alphabet="gzip*;q=01., \t\x00é-"))
def test_no_accept_encoding_breaks_the_parser(accept_encoding: str) -> None:
    assert accepts_gzip(accept_encoding) in (True, False)


@given(st.binary(max_size=400))
def test_no_query_string_breaks_the_parser(query: bytes) -> None:
    try:
        names = metric_names(query)
    except QueryError as error:
        assert len(str(error)) < 80  # noqa: PT017 - either outcome is fine, this is what one must be like
    else:
        assert all(0 < len(name) <= 256 for name in names)


def test_a_selection_of_the_greatest_size_is_taken() -> None:
    longest = "a" * 256
    query = "&".join(f"name[]={index}" for index in range(255)) + f"&name[]={longest}"
    assert metric_names(query.encode())[-1] == longest


def test_repeated_headers_are_joined() -> None:
    headers = ((b"accept", b"text/plain"), (b"host", b"x"), (b"accept", b"*/*;q=0.1"))
    request = Request("GET", "/", b"", headers, "")
    assert request.header(b"accept") == "text/plain, */*;q=0.1"
    assert request.header(b"cookie") == ""
