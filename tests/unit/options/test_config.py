"""Values, precedence, environment and combinations: what becomes a Config and what is refused."""

import re
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from tests.command_line import config_from

from gpu_triage.errors import ConfigError
from gpu_triage.options.config import Config, JudgeOption, LineRate, Origin, Setting, collector_enabled
from gpu_triage.options.option import MEANINGS, Option
from gpu_triage.options.option_sources import judge_options_now
from gpu_triage.options.option_table import CollectorSwitch, all_options
from gpu_triage.options.values import parse_duration, show_duration, split_listen_address, unix_socket_path
from gpu_triage.read.registry import COLLECTOR_SWITCHES

SWITCHES = (
    CollectorSwitch("process", "Processes on each GPU.", default=True),
    CollectorSwitch("host_disk", "Disk use.", default=True),
    CollectorSwitch("host_memory", "Memory pressure.", default=False),
)
OPTIONS = all_options(SWITCHES)


def test_the_program_starts_with_the_oldest_click_that_may_be_installed() -> None:
    types_that_are_not_generic = "import click; click.ParamType.__class_getitem__ = None; import gpu_triage.cli.main"
    subprocess.run([sys.executable, "-c", types_that_are_not_generic], check=True)


def config_of(environment: Mapping[str, str] | None = None, **flags: str) -> Config:
    """The Config of an environment and of flags written as ``sample__fast="1s"``."""
    by_name = {option.key.replace(".", "__").replace("-", "_"): option for option in OPTIONS}
    return config_from([flag(by_name[name], text) for name, text in flags.items()], environment, SWITCHES)


def flag(option: Option, text: str) -> str:
    """An option as an argument of the command line."""
    if option.on_off:
        return option.flag if text == "true" else option.negative_flag
    return f"{option.flag}={text}"


def refusal(environment: Mapping[str, str] | None = None, **flags: str) -> str:
    with pytest.raises(ConfigError) as caught:
        config_of(environment, **flags)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    assert "; " in message, "a refusal says what would be right"
    return message


GOOD: tuple[tuple[str, str, object], ...] = (
    ("web.listen-address", "127.0.0.1:0", ("127.0.0.1:0",)),
    ("web.allowed-hosts", "GPU-1.example.com", ("gpu-1.example.com",)),
    ("web.telemetry-path", "/gpu/metrics", "/gpu/metrics"),
    ("web.max-requests", "1000", 1000),
    ("web.enable-lifecycle", "true", True),
    ("web.systemd-socket", "true", True),
    ("web.config.file", "web.yml", "web.yml"),
    ("path.procfs", "/", Path("/")),
    ("path.sysfs", "/", Path("/")),
    ("path.kmsg", "/dev/null", Path("/dev/null")),
    ("sample.fast", "100ms", 0.1),
    ("sample.medium", "1m", 60.0),
    ("sample.slow", "1h", 3600.0),
    ("sample.deadline", "120s", 120.0),
    ("stale-after", "2", 2),
    ("expect.gpu-count", "64", 64),
    ("expect.pcie-generation", "7", 7),
    ("expect.pcie-width", "16", 16),
    ("expect.p2p", "false", False),
    ("baseline.file", "/etc/baseline.json", Path("/etc/baseline.json")),
    ("baseline.from-host", "false", False),
    ("state.directory", "/var/lib/gpu-triage", Path("/var/lib/gpu-triage")),
    ("flight-recorder.directory", "/var/lib/rec", Path("/var/lib/rec")),
    ("collector.textfile.directory", "/run/jobs", Path("/run/jobs")),
    ("judge", "thermal.hw.wait=5m", (JudgeOption("thermal.hw", "wait", "5m"),)),
    ("metrics.profile", "rules", "rules"),
    ("metrics.include", "gpu_nvlink_*", ("gpu_nvlink_*",)),
    ("metrics.exclude", "gpu_power_watts", ("gpu_power_watts",)),
    ("process.max", "0", 0),
    ("network.device-include", "mlx5_*", ("mlx5_*",)),
    ("network.device-exclude", "mlx5_4", ("mlx5_4",)),
    ("nccl.ras-address", "localhost:28028", ("localhost:28028",)),
    ("network.line-rate", "ens5=100G", (LineRate("ens5", 12_500_000_000),)),
    ("kubernetes.pod-resources-socket", "/run/kubelet.sock", Path("/run/kubelet.sock")),
    ("kubernetes.container-logs", "/var/log/containers", Path("/var/log/containers")),
    ("slurm.jobs-directory", "/run/gpu-triage/jobs", Path("/run/gpu-triage/jobs")),
    ("slurm.gpu-numbers", "index", "index"),
    ("log.level", "debug", "debug"),
    ("log.format", "json", "json"),
    ("replay", "/dev/null", Path("/dev/null")),
    ("simulate-pace", "1", 1),
    ("simulate-at", "0s", 0.0),
    ("simulate", "pcie-downtrained", "pcie-downtrained"),
)


@pytest.mark.parametrize(("name", "text", "value"), GOOD)
def test_an_option_sets_its_field_from_flag_and_variable_alike(name: str, text: str, value: object) -> None:
    option = next(option for option in OPTIONS if option.key == name)
    hints: dict[str, Any] = get_type_hints(Config, localns={"Mapping": Mapping})
    for config in (config_from([flag(option, text)]), config_from([], {option.variable: text})):
        chosen = getattr(config, str(option.field))
        assert chosen == value
        hint = hints[str(option.field)]
        assert isinstance(chosen, tuple | Path) or type(chosen) in getattr(hint, "__args__", (hint,))


def test_every_field_of_config_has_a_case_above() -> None:
    keys = {name for name, _, _ in GOOD}
    names = {field.name for field in fields(Config)} - {"collectors", "config_file"}
    assert {option.field for option in OPTIONS if option.key in keys} == names


REFUSED = yaml.safe_load((Path(__file__).parent / "refused.yml").read_text(encoding="utf-8"))
MANY = "9" * 5000
TOO_LONG = (
    ("path.kmsg", "does not exist; name another one", "x" * 5000),
    ("web.listen-address", "write an absolute path of at most 107 bytes", f"unix:/{'x' * 107}"),
    ("sample.fast", "from 100ms to 60s", f"{MANY}s"),
    ("stale-after", "a whole number from 2 to 100", MANY),
)


@pytest.mark.parametrize(
    ("name", "right", "text"),
    [
        *((name, right, text) for name, rows in REFUSED["values"].items() for right in rows for text in rows[right]),
        *TOO_LONG,
    ],
)
def test_a_bad_value_is_refused_naming_its_source_and_what_would_be_right(name: str, text: str, right: str) -> None:
    option = next(option for option in OPTIONS if option.key == name)
    by_variable = refusal({option.variable: text})
    assert by_variable.startswith(f"environment variable {option.variable}: ")
    assert right in by_variable
    assert len(by_variable) < 300
    if not option.on_off:
        with pytest.raises(ConfigError, match=rf"(?s)^{re.escape(option.flag)}: .*{re.escape(right)}"):
            config_from([flag(option, text)])


def test_flag_beats_variable_beats_file_beats_default(tmp_path: Path) -> None:
    file = tmp_path / "config.yml"
    file.write_text("sample: {fast: 2s, medium: 20s, slow: 200s}\nstale-after: 9\n")
    variables = {"CONFIG_FILE": str(file), "SAMPLE_FAST": "3s", "SAMPLE_MEDIUM": "30s"}
    config = config_of({f"GPU_TRIAGE_{name}": text for name, text in variables.items()}, sample__fast="4s")
    assert (config.sample_fast_seconds, config.sample_medium_seconds, config.sample_slow_seconds) == (4, 30, 200)
    assert (config.stale_after, config.process_max) == (9, Config().process_max)
    # A value that is overridden does not stop the start.
    assert config_of({"GPU_TRIAGE_STALE_AFTER": "wrong"}, stale_after="5").stale_after == 5


def test_a_variable_separates_several_values_by_commas() -> None:
    config = config_of({"GPU_TRIAGE_WEB_LISTEN_ADDRESS": "127.0.0.1:9836, [::1]:9836"})
    assert config.web_listen_addresses == ("127.0.0.1:9836", "[::1]:9836")
    assert "write host:port" in refusal({"GPU_TRIAGE_WEB_LISTEN_ADDRESS": ":9836,"})


def test_an_empty_variable_counts_as_not_set_and_nothing_given_yields_the_defaults() -> None:
    assert config_of({"GPU_TRIAGE_SIMULATE": "", "GPU_TRIAGE_SAMPLE_FAST": ""}) == config_of() == Config()


def test_an_unknown_variable_of_ours_is_refused_with_the_likely_one() -> None:
    message = refusal({"GPU_TRIAGE_SAMPLE_FATS": "1s"})
    assert message == "unknown environment variable GPU_TRIAGE_SAMPLE_FATS; did you mean GPU_TRIAGE_SAMPLE_FAST?"
    assert "lists them" in refusal({"GPU_TRIAGE_QQQQQQQQQQQQQQQQQQQQQQQQQQQ": "1s"})


OTHERS = (
    *("PATH", "GPU_TRIAGER_MODE", "GPU_TRIAGE_EXPORTER_SERVICE_HOST", "GPU_TRIAGE_EXPORTER_PORT_9836_TCP"),
    *("GPU_TRIAGE_SERVICE_HOST", "GPU_TRIAGE_SERVICE_PORT_HTTP_METRICS", "GPU_TRIAGE_PORT"),
    *("GPU_TRIAGE_PORT_9836_TCP_ADDR", "GPU_TRIAGE_METRICS_PORT_9836_TCP_PROTO"),
)


@pytest.mark.parametrize("variable", OTHERS)
def test_variables_of_others_are_left_alone(variable: str) -> None:
    assert config_of({variable: "tcp://10.0.0.1:9836"}) == Config()


@pytest.mark.parametrize(("flags", "parts"), REFUSED["combinations"])
def test_a_useless_combination_is_refused_naming_both_sides(flags: dict[str, str], parts: list[str]) -> None:
    message = refusal({}, **flags)
    assert [part for part in parts if part not in message] == []


@pytest.mark.parametrize(
    "flags",
    [
        {"sample__fast": "5s", "sample__slow": "5s"},
        {"simulate": "healthy", "path__sysfs": "/sys"},
        {"expect__gpu_count": "1", "expect__pcie_width": "16", "expect__pcie_generation": "4"},
        {"expect__gpu_count": "2", "expect__p2p": "true"},
        {"expect__p2p": "true", "expect__pcie_width": "16"},
        {"collector__host": "false"},
        {"baseline__from_host": "true", "state__directory": "/var/lib/gpu-triage"},
    ],
    ids=str,
)
def test_a_combination_just_beside_a_useless_one_is_accepted(flags: dict[str, str]) -> None:
    config_of(None, **flags)


@pytest.mark.parametrize("addresses", [":0,127.0.0.1:0", "127.0.0.1:80,127.0.0.1:81", "127.0.0.1:80,[::1]:80"])
def test_addresses_with_ports_of_their_own_are_accepted(addresses: str) -> None:
    config = config_of({"GPU_TRIAGE_WEB_LISTEN_ADDRESS": addresses})
    assert config.web_listen_addresses == tuple(addresses.split(","))


@pytest.mark.parametrize(
    "addresses", [":9836,:9836", "Host:80,host:80", "unix:/run/a,unix:/run/a", ":9836,127.0.0.1:9836", "[::1]:80,:80"]
)
def test_addresses_that_take_each_others_port_are_refused(addresses: str) -> None:
    message = refusal({"GPU_TRIAGE_WEB_LISTEN_ADDRESS": addresses})
    assert message.startswith("environment variable GPU_TRIAGE_WEB_LISTEN_ADDRESS: ")
    assert "write it once" in message or "keep one of them" in message


def test_a_collectors_own_switch_beats_its_groups_which_beats_its_default() -> None:
    config = config_of(collector__host="false", collector__host_memory="true")
    assert collector_enabled(config, "host_memory", default=False)
    assert not collector_enabled(config, "host_disk", default=True)
    assert collector_enabled(config, "process", default=True)
    assert not collector_enabled(Config(), "host_memory", default=False)
    assert not collector_enabled(config, "hostile", default=False)


def test_flags_variables_and_keys_are_unique() -> None:
    options = all_options(COLLECTOR_SWITCHES)
    assert len({option.flag for option in options}) == len(options) > len(COLLECTOR_SWITCHES) > 0
    assert len({option.variable for option in options}) == len(options)
    assert MEANINGS.keys() == {option.key for option in all_options(())}


SCHEDULED = tuple(CollectorSwitch(name, "It.", default=True) for name in ("processes", "allocation", "other"))
SOCKET = {"GPU_TRIAGE_KUBERNETES_POD_RESOURCES_SOCKET": "/run/kubelet.sock"}
LOGS = {"GPU_TRIAGE_KUBERNETES_CONTAINER_LOGS": "/var/log/containers"}
JOBS = {"GPU_TRIAGE_SLURM_JOBS_DIRECTORY": "/run/gpu-triage/jobs"}
NO_PROCESSES = {"GPU_TRIAGE_COLLECTOR_PROCESSES": "false"}
NO_ALLOCATION = {"GPU_TRIAGE_COLLECTOR_ALLOCATION": "false"}


@pytest.mark.parametrize(
    "variables",
    [
        *(SOCKET | NO_PROCESSES, SOCKET | NO_ALLOCATION, LOGS | NO_ALLOCATION, JOBS | NO_PROCESSES),
        JOBS | NO_ALLOCATION,  # the packages name the folder where there is slurmd
        *(SOCKET | LOGS | JOBS, JOBS | {"GPU_TRIAGE_SIMULATE": "dual-a10"}),
    ],
)
def test_what_still_tells_something_may_be_asked(variables: dict[str, str]) -> None:
    config_from([], variables, SCHEDULED)


@pytest.mark.parametrize(
    ("variables", "both"),
    [
        (SOCKET | NO_PROCESSES | NO_ALLOCATION, r"POD_RESOURCES_SOCKET.*COLLECTOR_PROCESSES.*COLLECTOR_ALLOCATION"),
        (LOGS | NO_PROCESSES, r"CONTAINER_LOGS.*COLLECTOR_PROCESSES"),
        (NO_ALLOCATION, r"--slurm\.jobs-directory.*COLLECTOR_ALLOCATION"),
    ],
)
def test_who_cannot_be_told_must_not_be_asked(variables: dict[str, str], both: str) -> None:
    flags = ["--slurm.jobs-directory=/run/gpu-triage/jobs"] if variables is NO_ALLOCATION else []
    with pytest.raises(ConfigError, match=rf"{both}.*leave one of them out"):
        config_from(flags, variables, SCHEDULED)


def test_listen_addresses_split_into_host_and_port() -> None:
    assert split_listen_address(":9836") == ("", 9836)
    assert split_listen_address("[fe80::1%eth0]:80") == ("fe80::1%eth0", 80)
    assert split_listen_address("gpu-node_1.example:0") == ("gpu-node_1.example", 0)
    assert (unix_socket_path("unix:/run/gpu.sock"), unix_socket_path(":9836")) == ("/run/gpu.sock", None)


@given(st.floats(min_value=0.001, max_value=1e6))
def test_any_duration_is_written_so_that_it_reads_back(seconds: float) -> None:
    assert parse_duration(show_duration(seconds)) == seconds


@given(st.text(max_size=12))
def test_any_text_is_a_duration_or_refused_on_one_line(text: str) -> None:
    try:
        assert parse_duration(text) >= 0
    except ValueError as error:
        assert len(str(error).splitlines()) == 1  # noqa: PT017 - either outcome is right
        assert "; write " in str(error)  # noqa: PT017


def config_of_file(path: Path | str) -> Config:
    return config_from([f"--config.file={path}"], {}, [CollectorSwitch("host_disk", "Disk use.", default=True)])


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "config.yml"


def file_refusal(path: Path, content: str) -> str:
    """What is said of the content, without the path every message must begin with."""
    path.write_text(content)
    with pytest.raises(ConfigError) as caught:
        config_of_file(path)
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
    assert config_of_file(file) == Config(
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
    assert config_of_file(file) == Config()


def test_yamls_guesses_about_types_do_not_change_a_value_and_one_may_stand_for_a_list(file: Path) -> None:
    for text in ("010", "1:30", "off", "1e3", "2026-01-02"):
        file.write_text(f"simulate: {text}")
        assert config_of_file(file).simulate == text
    file.write_text("web: {listen-address: localhost:9836}")
    assert config_of_file(file).web_listen_addresses == ("localhost:9836",)


@pytest.mark.parametrize(("content", "message"), REFUSED["files"])
def test_a_mistake_is_answered_with_its_place_and_what_would_be_right(file: Path, content: str, message: str) -> None:
    assert file_refusal(file, content).startswith(message)


@pytest.fixture
def judge_file(file: Path) -> Path:
    file.write_text("judge:\n  thermal.hw: {wait: 5m, hold: 15m, share: 20 %}\n  xid.79:\n    wait: 1m\n")
    return file


def test_what_a_files_tables_and_other_sources_say_is_combined_and_the_flag_comes_last(judge_file: Path) -> None:
    scenario = {"judge": Setting(("power.cap.share=0.8",), "the scenario")}
    config = config_from(
        [f"--config.file={judge_file}", "--judge=thermal.hw.wait=1m", "--judge", "pcie.aer.count=5", "--simulate=x"],
        {"GPU_TRIAGE_JUDGE": "thermal.hw.wait=2m,thermal.sw.wait=3m"},
        of_scenario=lambda _name: scenario,
    )
    said = [(each.code, each.name, each.text, each.origin, each.place) for each in config.judge]
    assert said == [
        ("power.cap", "share", "0.8", Origin.SCENARIO, "the scenario"),
        ("thermal.hw", "wait", "5m", Origin.FILE, f"{judge_file}: judge"),
        ("thermal.hw", "hold", "15m", Origin.FILE, f"{judge_file}: judge"),
        ("thermal.hw", "share", "20 %", Origin.FILE, f"{judge_file}: judge"),
        ("xid.79", "wait", "1m", Origin.FILE, f"{judge_file}: judge"),
        ("thermal.hw", "wait", "2m", Origin.VARIABLE, "environment variable GPU_TRIAGE_JUDGE"),
        ("thermal.sw", "wait", "3m", Origin.VARIABLE, "environment variable GPU_TRIAGE_JUDGE"),
        ("thermal.hw", "wait", "1m", Origin.FLAG, "--judge"),
        ("pcie.aer", "count", "5", Origin.FLAG, "--judge"),
    ]


@pytest.mark.parametrize(
    ("content", "right"),
    [
        ("judge: 5m", "judge: is '5m'; write a table for each finding, such as thermal.hw: {wait: 5m}"),
        ("judge: [a]", "judge: is a list; write a table for each finding, such as thermal.hw: {wait: 5m}"),
        ("judge: {thermal.hw: 5m}", "judge: is a table; thermal.hw: write its settings as a table, such as {wait: 5m}"),
        ("judge: {thermal.hw: {wait: [5m]}}", "judge: is a table; thermal.hw.wait: write one value, such as 5m"),
    ],
)
def test_a_section_of_another_form_is_refused_with_the_right_one(judge_file: Path, content: str, right: str) -> None:
    judge_file.write_text(content)
    with pytest.raises(ConfigError) as caught:
        config_from([f"--config.file={judge_file}"])
    assert str(caught.value) == f"{judge_file}: line 1: {right}"


def test_reading_again_takes_the_files_settings_and_leaves_the_others(judge_file: Path) -> None:
    config = config_from(
        [f"--config.file={judge_file}", "--judge=thermal.hw.hold=1m"], {"GPU_TRIAGE_JUDGE": "xid.79.wait=9m"}
    )
    judge_file.write_text("judge: {thermal.hw: {wait: 7m}}")
    assert judge_options_now(config, all_options(())) == (
        JudgeOption("thermal.hw", "wait", "7m"),
        JudgeOption("xid.79", "wait", "9m"),
        JudgeOption("thermal.hw", "hold", "1m"),
    )
    without_file = config_from(["--judge=thermal.hw.hold=1m"])
    assert judge_options_now(without_file, all_options(())) is without_file.judge
