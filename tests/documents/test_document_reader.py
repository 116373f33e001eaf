"""Documents: what each format may hold, how values are read, and what is said of every mistake."""

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_triage.documents import (
    AtMost,
    Key,
    Keyed,
    Parsed,
    Pattern,
    Place,
    Range,
    Secret,
    Tagged,
    parse_json,
    parse_toml,
    parse_yaml,
    raised_as,
    read_file,
    read_value,
)
from gpu_triage.documents.files import write_file
from gpu_triage.errors import ConfigError, DocumentError

Parse = Callable[[bytes, str], Any]


@dataclass(frozen=True)
class Disk:
    gib: Annotated[int, Range(1, 100)]


@dataclass(frozen=True)
class Nic:
    speed: Literal["10G", "100G"]


@dataclass(frozen=True)
class Host:
    name: Annotated[str, Pattern("[a-z]+", "lower-case letters")]
    share: float = 0.5
    up: bool = True
    cores: Annotated[tuple[int, ...], AtMost(2)] = ()
    labels: dict[str, str] = field(default_factory=dict)
    disk: Disk | None = None
    part: Annotated[Any, Tagged("kind", {"disk": Disk, "nic": Nic})] = None
    hold: Annotated[str, Key("for")] = ""
    pin: Annotated[str, Secret(), Pattern("x+", "some x")] = "x"
    port: Annotated[int, Parsed(lambda text: int(text, 16))] = 0


def problems(text: str, parse: Parse = parse_yaml, hint: Any = Host) -> list[str]:
    with pytest.raises(DocumentError) as refused:
        read_value(hint, parse(text.encode(), "host"), Place("host"))
    return [problem.removeprefix("host: ") for problem in refused.value.problems]


def test_one_hint_reads_yaml_toml_and_json_alike() -> None:
    expected = Host("a", 1.0, up=False, cores=(1, 2), labels={"x": "1"}, disk=Disk(5), hold="1m", port=255)
    as_yaml = "{name: a, share: 1, up: False, cores: [1, 2], labels: {x: 1}, disk: {gib: 5}, for: 1m, port: ff}"
    as_toml = 'name="a"\nshare=1\nup=false\ncores=[1,2]\nlabels={x="1"}\ndisk={gib=5}\nfor="1m"\nport="ff"'
    as_json = (
        '{"name":"a","share":1,"up":false,"cores":[1,2],"labels":{"x":"1"},"disk":{"gib":5},"for":"1m","port":"ff"}'
    )
    for parse, text in ((parse_yaml, as_yaml), (parse_toml, as_toml), (parse_json, as_json)):
        assert read_value(Host, parse(text.encode(), "host"), Place("host")) == expected


def test_the_kind_of_a_tagged_table_decides_how_it_is_read() -> None:
    assert read_value(Host, parse_yaml(b"{name: a, part: {kind: nic, speed: 10G}}", ""), Place("")).part == Nic("10G")


@pytest.mark.parametrize("number", ["1e999", "NaN", "-Infinity", "9" * 400, "-" + "9" * 400])
def test_a_number_is_finite(number: str) -> None:
    for parse, text in ((parse_json, f'{{"name": "a", "share": {number}}}'), (parse_yaml, f"name: a\nshare: {number}")):
        (said,) = problems(text, parse)
        assert said.endswith("; write a number")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("name: A", "line 1: name: is 'A'; write lower-case letters"),
        ("share: 1", "name: is missing; write lower-case letters"),
        ("name: a\nshare: much", "line 2: share: is 'much'; write a number"),
        ("name: a\nup: yes", "line 2: up: is 'yes'; write true or false"),
        ("name: a\ncores: [1, x]", "line 2: cores[1]: is 'x'; write a whole number"),
        ("name: a\ncores: [1, 2, 3]", "line 2: cores: has 3 entries; write at most 2"),
        ("name: a\ncores: 1", "line 2: cores: is '1'; write a list"),
        ("name: a\nlabels: [x]", "line 2: labels: is not a table; write keys and values below it"),
        ("name: a\nlabels: {x: [1]}", "line 2: labels.x: is a list; write text"),
        ("name: a\ndisk: {gib: 101}", "line 2: disk.gib: is '101'; write a whole number from 1 to 100"),
        ("name: a\ndisk: {}", "line 2: disk.gib: is missing; write a whole number from 1 to 100"),
        ("name: a\npart: {kind: fan}", "line 2: part.kind: is 'fan'; known are disk, nic"),
        ("name: a\npart: {kind: nic, speed: 1G}", "line 2: part.speed: is '1G'; did you mean 10G?"),
        ("name:", "line 1: name: has no value; write lower-case letters or leave the key out"),
        ("name: a\nport: x", "line 2: port: is 'x'; invalid literal for int() with base 16: 'x'"),
        ("name: a\nshaer: 1", "line 2: shaer: unknown key; did you mean share?"),
        ("name: a\n'a\tb': 1", "line 2: 'a\\tb': unknown key; known are name, "),
        ("- a", "line 1: is not a table; write keys and values below it"),
    ],
)
def test_a_mistake_names_line_key_value_and_what_is_right(text: str, problem: str) -> None:
    (said,) = problems(text.replace("\\t", "\t"))
    assert said.startswith(problem)


def test_every_mistake_is_told_thousands_are_briefly_and_the_message_counts_them() -> None:
    assert len(problems("shaer: 1\nup: maybe\ncores: [x, y]")) == 5
    with pytest.raises(DocumentError, match=r"unknown key.*\(and 2 more mistakes\)"):
        read_value(Host, {"a1": 1, "up": 2}, Place("host"))
    said = problems("\n".join(f"{'k' * 200}{number}: 1" for number in range(2000)))
    assert len(said) == 20
    assert max(map(len, said)) < 300


def test_a_secret_is_repeated_in_no_message() -> None:
    assert problems("{name: a, pin: hunter2}") == ["line 1: pin: write some x"]
    assert problems("{name: a, pin: [hunter2]}") == ["line 1: pin: is a list; write some x"]


def test_a_table_of_known_keys_names_them_in_its_own_words() -> None:
    hint = Keyed({f"Alert{number}": int for number in range(17)}, "alert", "rules --print-config lists them")
    assert problems("Zzz: 1", hint=hint) == ["line 1: Zzz: unknown alert; rules --print-config lists them"]


@pytest.mark.parametrize(
    ("parse", "text", "message"),
    [
        (parse_yaml, "a: {b: 1, b: 2}", "host: line 1: a.b: is written twice; keep one of them"),
        (parse_yaml, "a: 1\n'a': 2", "host: line 2: a: is written twice"),
        (parse_json, '[{"a": {"c": 1, "b": 1, "b": 2}}]', "host: the key 'b' is written twice; keep one of them"),
        (parse_toml, "[a]\nb = 1\nb = 2", "host: is not valid TOML: Cannot overwrite a value"),
        (parse_yaml, "? [a]\n: 1", "host: line 1: a key is not a plain word"),
        (parse_yaml, "a: [", "host: line 1: "),
        (parse_yaml, "a: 1\n---\nb: 2", "host: line 2: "),
        (parse_yaml, "a: \x01", "host: character 4: "),
        (parse_json, '{\n"a": }', "host: line 2: is not valid JSON: "),
        (parse_json, "9" * 5000, "host: is not valid JSON: "),
        (parse_toml, "a = ", "host: is not valid TOML: "),
        (parse_toml, "a = " + "9" * 5000, "host: is not valid TOML: "),
        *((parse, "[" * 100_000, "host: is nested too deeply; ") for parse in (parse_yaml, parse_json)),
        (parse_toml, "a = " + "[" * 100_000, "host: is nested too deeply; "),
    ],
)
def test_a_document_that_breaks_its_format_is_refused(parse: Parse, text: str, message: str) -> None:
    with pytest.raises(DocumentError) as refused:
        parse(text.encode(), "host")
    assert str(refused.value).startswith(message)
    assert refused.value.reason == "malformed"


@pytest.mark.parametrize("parse", [parse_yaml, parse_toml, parse_json])
def test_a_document_that_is_not_utf_8_is_refused(parse: Parse) -> None:
    with pytest.raises(DocumentError, match="host: is not UTF-8 at byte 1; save it as UTF-8"):
        parse(b'"\xff"', "host")


def test_aliases_cost_nothing_and_may_lead_back_to_themselves() -> None:
    layers = "".join(f"l{i}: &l{i} [{', '.join([f'*l{i - 1}'] * 9)}]\n" for i in range(1, 60))
    value = parse_yaml(f"l0: &l0 [x]\n{layers}name: *l59".encode(), "host")
    with pytest.raises(DocumentError, match="name: is a list; write lower-case letters"):
        read_value(Host, {"name": value["name"]}, Place("host"))
    circle = parse_yaml(b"&a [*a]", "host")
    assert circle[0] is circle
    with pytest.raises(DocumentError, match="host: is not a table"):
        read_value(Host, circle, Place("host"))


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda path: None, "missing"),  # noqa: ARG005 - the others need it
        (lambda path: path.mkdir(), "not_a_file"),
        (os.mkfifo, "not_a_file"),
        (lambda path: path.symlink_to("/dev/zero"), "not_a_file"),
        (lambda path: path.write_bytes(b"x" * 11), "too_large"),
    ],
)
def test_an_unreadable_file_is_named_with_reason(tmp_path: Path, make: Callable[[Path], object], reason: str) -> None:
    path = tmp_path / "file"
    make(path)
    with pytest.raises(DocumentError, match=r"name a (readable|smaller) file") as refused:
        read_file(path, most_bytes=10)
    assert refused.value.reason == reason
    assert str(refused.value).startswith(f"{path}: ")


def test_a_file_is_replaced_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "file"
    write_file(path, b"one")
    write_file(path, b"two")
    with pytest.raises(FileNotFoundError):
        write_file(tmp_path / "none" / "file", b"three")
    assert path.read_bytes() == b"two"
    assert [each.name for each in tmp_path.iterdir()] == ["file"]


def test_an_error_keeps_its_problems_and_reason_under_another_name() -> None:
    with pytest.raises(ConfigError) as refused, raised_as(ConfigError):
        raise DocumentError("a", "b", reason="too_large")
    assert (refused.value.problems, refused.value.reason) == (("a", "b"), "too_large")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text() | st.sampled_from(["name", "disk", "cores"]), inner),
        max_leaves=8,
    )
)
def test_any_value_is_read_or_refused_on_one_line_each(value: object) -> None:
    try:
        assert isinstance(read_value(Host, value, Place("host")), Host)
    except DocumentError as error:
        assert all(len(problem.splitlines()) == 1 for problem in error.problems)  # noqa: PT017 - either is right
