"""Log lines: their form, what can never break them, and who writes them."""

import io
import json
import logging
import re
import sys
from collections.abc import Mapping

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_triage.log import FORMATTERS, MOST_LINES, _Handler, configure, fields, repeated

PAIR = re.compile(r'([A-Za-z0-9_.-]+)=("(?:[^"\\]|\\.)*"|[^\s"]*)(?: |$)')
CREATED = 1767323045.678


def record(message: str, *arguments: object, name: str = "gpu_triage.test", **facts: object) -> logging.LogRecord:
    made = logging.LogRecord(name, logging.INFO, "file.py", 7, message, arguments, None)
    made.created = CREATED
    made.__dict__.update(fields(**facts))
    return made


def parsed(line: str) -> dict[str, str]:
    """The pairs of a logfmt line; fails where anything is left over."""
    assert "".join(match[0] for match in PAIR.finditer(line)) == line
    return {key: json.loads(value) if value.startswith('"') else value for key, value in PAIR.findall(line)}


@pytest.fixture
def stream() -> io.StringIO:
    """A place to log to."""
    return io.StringIO()


def test_a_logfmt_line_has_time_level_message_and_the_fields_in_order() -> None:
    line = FORMATTERS["logfmt"].format(record("GPU %d stalled", 3, gpu=3, seconds=5.0, name_="H100 80GB"))
    assert line == ('ts=2026-01-02T03:04:05.678Z level=info msg="GPU 3 stalled" gpu=3 seconds=5.0 name_="H100 80GB"')


def test_a_json_line_is_one_object_with_typed_values() -> None:
    line = FORMATTERS["json"].format(record("started", gpus=8, uuid=None, ok=True, ratio=0.5, bad=float("nan")))
    own = {"ts": "2026-01-02T03:04:05.678Z", "level": "info", "msg": "started"}
    assert json.loads(line) == {**own, "gpus": 8, "uuid": None, "ok": True, "ratio": 0.5, "bad": "nan"}


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("plain-word/1", "plain-word/1"),
        ("", '""'),
        ("two words", '"two words"'),
        ("a=b", '"a=b"'),
        ('say "hi"', r'"say \"hi\""'),
        ("back\\slash", r'"back\\slash"'),
        ("line\nbreak\r\t\x1b[31m", r'"line\nbreak\r\t\u001b[31m"'),
        ("\u2028\x85\udcff", r'"\u2028\u0085\udcff"'),
        ("grün", "grün"),
        ("null", '"null"'),
        (None, "null"),
        (True, "true"),
        (1e300, "1e+300"),
        (float("-inf"), "-inf"),
        pytest.param(10**400, "1" + "0" * 400, id="more than a float holds"),
    ],
)
def test_logfmt_quotes_what_needs_it(value: object, written: str) -> None:
    assert FORMATTERS["logfmt"].format(record("m", key=value)).endswith(f"msg=m key={written}")


@given(st.text(), st.dictionaries(st.from_regex(r"[a-z]{4,8}", fullmatch=True), st.text()))
def test_any_text_survives_logfmt_and_json(message: str, facts: dict[str, str]) -> None:
    made = record("%s", message)
    made.__dict__.update(fields(**facts))
    own = {"ts": "2026-01-02T03:04:05.678Z", "level": "info", "msg": message}
    for form, parse in (("logfmt", parsed), ("json", json.loads)):
        line = FORMATTERS[form].format(made)
        assert len(line.splitlines()) == 1
        assert parse(line) == own | facts


@given(st.text(alphabet=st.characters(categories=["Cs", "Cc", "Zl", "Zp", "Ll"])))
def test_text_that_was_no_utf8_still_makes_one_line_that_can_be_written(text: str) -> None:
    for formatter in FORMATTERS.values():
        line = formatter.format(record("m", key=text))
        assert len(line.encode("utf-8").splitlines()) == 1


class Unprintable:
    def __str__(self) -> str:
        raise RuntimeError("no")

    __repr__ = __str__


def test_a_record_that_cannot_be_formatted_is_reported_instead_of_raised() -> None:
    for formatter in FORMATTERS.values():
        line = formatter.format(record("%s", Unprintable()))
        assert "a log record could not be formatted" in line
        assert "file.py:7" in line
        assert "RuntimeError" in line


def test_an_exception_is_fields_of_the_same_line() -> None:
    made = record("round failed")
    try:
        int("first\nsecond")
    except ValueError:
        made.exc_info = sys.exc_info()
    for pairs in (parsed(FORMATTERS["logfmt"].format(made)), json.loads(FORMATTERS["json"].format(made))):
        assert pairs["error"] == "ValueError: invalid literal for int() with base 10: 'first\\nsecond'"
        assert pairs["traceback"].startswith("Traceback (most recent call last):")


def test_own_records_obey_the_level_and_others_are_heard_from_warning_on(stream: io.StringIO) -> None:
    configure("debug", "logfmt", stream)
    logging.getLogger("gpu_triage.sampler").debug("ours")
    logging.getLogger("asyncio").info("theirs")
    logging.getLogger("asyncio").warning("theirs too")
    told = [(pairs["msg"], pairs.get("logger")) for pairs in map(parsed, stream.getvalue().splitlines())]
    assert told == [("ours", None), ("theirs too", "asyncio")]
    configure("error", "logfmt", stream)
    logging.getLogger("gpu_triage.sampler").warning("quiet now")
    assert "quiet now" not in stream.getvalue()


def test_the_log_goes_to_stderr_unless_told_and_to_one_place_alone(
    stream: io.StringIO, capsys: pytest.CaptureFixture[str]
) -> None:
    configure("info", "logfmt")
    logging.getLogger("gpu_triage").info("hello")
    assert "msg=hello" in capsys.readouterr().err
    configure("info", "json", stream)
    logging.getLogger("gpu_triage").info("once", extra=fields(gpu=1))
    assert json.loads(stream.getvalue())["gpu"] == 1
    stream.close()
    logging.getLogger("gpu_triage").error("nobody hears")
    assert capsys.readouterr().err == "", "a stream that is gone costs only the line"


class Bounded(_Handler):
    """A handler whose places write so many lines only, by a clock that is set."""

    def __init__(self) -> None:
        self.seconds, self.text = 0.0, io.StringIO()
        super().__init__(self.text, lambda: self.seconds)
        self.setFormatter(FORMATTERS["json"])

    def say(
        self, place: int = 1, message: str = "m", times: int = 1, extra: Mapping[str, object] | None = None
    ) -> None:
        for _ in range(times):
            made = logging.LogRecord("gpu_triage.test", logging.WARNING, "file.py", place, message, (), None)
            made.__dict__.update(extra or {})
            self.handle(made)

    def written(self) -> list[tuple[str, int | None]]:
        """The message of each line, and how many it stands for if it is a sum."""
        lines = [json.loads(line) for line in self.text.getvalue().splitlines()]
        return [(line.get("of", line["msg"]), line.get("lines")) for line in lines]


def test_each_place_writes_so_many_lines_at_once_then_one_a_minute_and_the_others_are_summed_up() -> None:
    handler = Bounded()
    handler.say(1, "storm", times=20_267)
    handler.say(2, "quiet")
    assert handler.written() == [("storm", None)] * MOST_LINES + [("quiet", None)]
    for minute in range(1, 4):
        handler.seconds = 60.0 * minute
        handler.say(1, "storm", times=100)
    handler.close()
    left_out = 20_267 - MOST_LINES + 3 * 99
    assert handler.written()[MOST_LINES + 1 :] == [("storm", None)] * 3 + [("storm", left_out)]


def test_what_was_left_out_is_summed_up_once_after_ten_minutes() -> None:
    handler = Bounded()
    handler.say(times=MOST_LINES + 5)
    for handler.seconds in (599.0, 600.0, 601.0):
        handler.say()
    handler.close()
    assert handler.written()[MOST_LINES:] == [("m", None), ("m", 5), ("m", None), ("m", None)]


def test_a_line_of_a_kind_is_written_again_after_its_quiet_time() -> None:
    handler = Bounded()
    for seconds, kind in ((0, "a"), (1, "a"), (2, "b"), (59, "a"), (60, "a"), (61, "a")):
        handler.seconds = float(seconds)
        handler.say(1, kind, extra=repeated(kind, 60.0))
    handler.close()
    assert handler.written() == [("a", None), ("b", None), ("a", None), ("a", 3)]


def test_kinds_without_number_take_no_memory_without_end() -> None:
    handler = Bounded()
    for kind in (*range(3000), 0):
        handler.seconds += 60.0
        handler.say(extra=repeated(kind, 1e9))
    handler.close()
    assert len(handler.written()) == 3001
