from __future__ import annotations

import pytest
from tests.command_line import config_from

from gpu_triage.errors import ConfigError
from gpu_triage.options.values import split_listen_address, unix_socket_path


def config_of(**values: str) -> None:
    """Build a config from flags, dots and dashes written as ``__`` and ``_``."""
    given = {name.replace("__", ".").replace("_", "-"): value for name, value in values.items()}
    config_from([f"--{name}" if value == "true" else f"--{name}={value}" for name, value in given.items()])


@pytest.mark.parametrize("path", ["run/gpu.sock", "", "/" + "x" * 107, "/run/\x1b"])
def test_a_unix_address_is_an_absolute_path_that_a_kernel_takes(path: str) -> None:
    with pytest.raises(ConfigError, match="write an absolute path of at most 107 bytes"):
        config_of(web__listen_address=f"unix:{path}")
    assert unix_socket_path("unix:/run/gpu.sock") == "/run/gpu.sock"
    assert unix_socket_path("unix:9836".removeprefix("unix")) is None


def test_addresses_beside_sockets_of_systemd_are_refused_naming_both() -> None:
    with pytest.raises(ConfigError, match=r"--web\.listen-address has no effect .*--web\.systemd-socket.*leave one"):
        config_of(web__systemd_socket="true", web__listen_address=":80")


def test_listen_addresses_split_into_host_and_port() -> None:
    assert split_listen_address(":9836") == ("", 9836)
    assert split_listen_address("[fe80::1%eth0]:80") == ("fe80::1%eth0", 80)
    assert split_listen_address("gpu-node_1.example:0") == ("gpu-node_1.example", 0)
