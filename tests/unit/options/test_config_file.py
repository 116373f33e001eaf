"""The YAML file: what it may hold, and how mistakes are answered that are not those of any document."""

from pathlib import Path

import pytest
from tests.command_line import config_from

from gpu_triage.errors import ConfigError
from gpu_triage.options.config import Config
from gpu_triage.options.option_table import CollectorSwitch

SWITCHES = (
    CollectorSwitch("process", "Processes on each GPU.", default=True),
    CollectorSwitch("host_disk", "Disk use.", default=True),
)


def config_of(path: Path | str) -> Config:
    return config_from([f"--config.file={path}"], {}, SWITCHES)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config.yml"


def refusal(path: Path, content: str) -> str:
    """What is said of the content, without the path every message must begin with."""
    path.write_text(content)
    with pytest.raises(ConfigError) as caught:
        config_of(path)
    message = str(caught.value)
    assert message.startswith(f"{path}: ")
    assert len(message.splitlines()) == 1
    assert "; " in message, "a refusal says what would be right"
    return message.removeprefix(f"{path}: ")


def test_keys_are_nested_by_the_dots_of_the_options(file: Path) -> None:
    file.write_text(
        """\
        web:
          listen-address: [":9836", "127.0.0.1:9999"]
          telemetry-path: /gpu
        sample: {fast: 500ms}
        stale-after: 4
        expect: {p2p: True, pcie-width: 16}
        collector: {host: false, host_disk: true}
        """
    )
    assert config_of(file) == Config(
        web_listen_addresses=(":9836", "127.0.0.1:9999"),
        web_telemetry_path="/gpu",
        sample_fast_seconds=0.5,
        stale_after=4,
        expect_p2p=True,
        expect_pcie_width=16,
        collectors={"host": False, "host_disk": True},
    )


@pytest.mark.parametrize("content", ["", "# nothing yet\n", "\ufeff---\n", "web:\nsample:\n  # fast: 2s\n"])
def test_a_file_that_sets_nothing_leaves_the_defaults(file: Path, content: str) -> None:
    file.write_text(content, encoding="utf-8")
    assert config_of(file) == Config()


def test_one_value_may_stand_for_a_list(file: Path) -> None:
    file.write_text("web: {listen-address: localhost:9836}")
    assert config_of(file).web_listen_addresses == ("localhost:9836",)


def test_yamls_guesses_about_types_do_not_change_a_value(file: Path) -> None:
    for text in ("010", "1:30", "off", "1e3", "2026-01-02"):
        file.write_text(f"simulate: {text}")
        assert config_of(file).simulate == text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("sample: {fast: 5}", "sample.fast: '5' has no unit; write 5s"),
        ("expect: {p2p: yes}", "expect.p2p: 'yes' is invalid; write true or false"),
        ("sample: {fsat: 1s}", "line 1: sample.fsat: unknown key; did you mean fast?"),
        ("web: {listen_address: ':1'}", "line 1: web.listen_address: unknown key; did you mean listen-address?"),
        ("sample.fast: 1s", "line 1: sample.fast: unknown key; did you mean sample?"),
        ("config: {file: other.yml}", "line 1: config: unknown key; "),
        ("stale-after: {a: 1}", "line 1: stale-after: is a table; write one value"),
        ("stale-after: [3]", "line 1: stale-after: is a list; write one value"),
        ("web: {listen-address: [[':1']]}", "line 1: web.listen-address: is a list; write a value or a list"),
        ("web: {listen-address: []}", "line 1: web.listen-address: is a list; write a value or a list"),
        ("simulate: null", "line 1: simulate: has no value; write one or leave the key out"),
    ],
)
def test_a_mistake_is_answered_with_its_place_and_what_would_be_right(file: Path, content: str, message: str) -> None:
    assert refusal(file, content).startswith(message)


def test_no_object_is_made_of_a_tagged_value(file: Path) -> None:
    file.write_text("simulate: !!python/object/apply:os.getcwd []")
    with pytest.raises(ConfigError, match="is a list; write one value"):
        config_of(file)
