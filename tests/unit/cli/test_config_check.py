"""`gpu-triage config check` says of a configuration what the exporter would say at its start."""

import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.certificates import Authority
from tests.faults.stand_in import StandIn

from gpu_triage.cli.main import group
from gpu_triage.cli.run import run_cli
from gpu_triage.driver.nvml import probe

HASH = "$2b$04$abcdefghijklmnopqrstuuO3lS8zPFVJuXdeLaPgJ5xQ3h1kQ0D1C"


@pytest.fixture(autouse=True)
def _no_variables_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GPU_TRIAGE_CONFIG_FILE", raising=False)


def check(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, list[str]]:
    code = run_cli(group, ["config", "check", *map(str, arguments)])
    out, err = capsys.readouterr()
    return code, out, [line.removeprefix("gpu-triage: error: ") for line in err.splitlines()]


def test_what_can_be_used_is_ok_and_says_what_was_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    web, baseline, options = tmp_path / "web.yml", tmp_path / "baseline.json", tmp_path / "options.yml"
    web.write_text(Authority(tmp_path).server() + f'basic_auth_users:\n  ada: "{HASH}"\n')
    assert run_cli(group, ["baseline", "write", str(baseline), "--simulate", "rtx-4070-ti-super"]) == 0
    capsys.readouterr()
    options.write_text(f"web:\n  config:\n    file: {web}\nbaseline:\n  file: {baseline}\n")
    code, out, err = check(capsys, options)
    assert (code, err) == (0, [])
    first, second, last = out.splitlines()
    assert first == f"{web}: HTTPS, 1 user"
    assert re.fullmatch(rf"{re.escape(str(baseline))}: 2 GPUs, recorded \S+Z", second)
    assert last == "OK"
    assert check(capsys) == (0, "OK\n", [])
    assert "named twice" in check(capsys, options, "--config.file", options)[2][0]


def test_every_mistake_is_a_line_and_the_exit_code_is_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / "broken"
    broken.write_text("{")
    flags = ("--web.config.file", broken, "--baseline.file", broken, "--metrics.exclude", "gpu_nothing")
    code, out, err = check(capsys, *flags)
    assert (code, out) == (2, "")
    assert [line.split(":")[0] for line in err] == ["metrics.exclude", str(broken), str(broken)]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("expect:\n  gpu-count: many\n", "expect.gpu-count: 'many' is invalid; write a whole number from 0 to 64"),
        ("expect:\n  gpu-cuont: 8\n", "line 2: expect.gpu-cuont: unknown key; did you mean gpu-count?"),
        ("sample:\n  fast: 10s\n", "sample.medium (5s, the default) is shorter than sample.fast (10s, "),
    ],
)
def test_an_unusable_option_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, said: str) -> None:
    path = tmp_path / "config.yml"
    path.write_text(text)
    code, _, (line,) = check(capsys, path)
    assert code == 2
    assert said in line
    assert str(path) in line
    assert check(capsys, "--config.file", path)[2] == [line]


def test_a_certificate_that_is_not_there_is_a_mistake(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    web = tmp_path / "web.yml"
    web.write_text("tls_server_config:\n  cert_file: gone.pem\n  key_file: gone.key\n")
    code, _, (line,) = check(capsys, "--web.config.file", web)
    assert code == 2
    assert str(tmp_path / "gone.pem") in line


@pytest.mark.slow
def test_the_driver_tells_its_versions_and_one_that_hangs_is_not_waited_for(tmp_path: Path) -> None:
    host = StandIn(tmp_path, gpus=1)
    command = [sys.executable, "-c", f"from {probe.__name__} import *; print(versions_in_words(float(sys.argv[1])))"]

    def told(seconds: str) -> str:
        ended = subprocess.run([*command, seconds], env=host.environment, capture_output=True, text=True, check=True)
        return ended.stdout.rstrip("\n")

    assert re.fullmatch(r"driver \S+, NVML \S+, CUDA \S+", told("60"))
    host.set("host hang nvmlInit")
    began = time.monotonic()
    assert told("1") == "the driver does not answer within 1 s"
    assert time.monotonic() - began < 30
    host.replace("unloaded")
    assert told("60") == "no driver: driver_not_loaded"
