from __future__ import annotations

import pytest
from tests.host_tree import HostTree

from gpu_triage.errors import HostReadFailed
from gpu_triage.read.host.platform import (
    MODULE_NAMES,
    HostModulesReading,
    read_host_modules,
)

LISTED = """\
nvidia_uvm 1761280 4 - Live 0x0000000000000000 (POE)
nvidia_drm 122880 0 - Unloading 0x0000000000000000 (POE)
nvidia_modeset 1585152 1 nvidia_drm, Loading 0x0000000000000000 (POE)
nvidia 56823808 55 nvidia_uvm,nvidia_modeset, Live 0x0000000000000000 (POE)
mlx5_core 2207744 1 mlx5_ib, Live 0x0000000000000000
"""

LOADED = {module: module in {"nvidia", "nvidia_uvm"} for module in MODULE_NAMES}


def test_only_live_modules_of_nvidia_are_loaded(host: HostTree) -> None:
    host.write({"proc/modules": LISTED})
    assert read_host_modules(host.round()) == HostModulesReading(loaded=LOADED)


def test_no_module_at_all_is_known_and_no_list_is_not(host: HostTree) -> None:
    host.mount()
    assert read_host_modules(host.round()) == HostModulesReading(loaded=None)
    host.write({"proc/modules": ""})
    assert read_host_modules(host.round()) == HostModulesReading(loaded=dict.fromkeys(MODULE_NAMES, False))


def test_a_malformed_line_costs_only_itself(host: HostTree) -> None:
    host.write({"proc/modules": LISTED + "nvidia_peermem 16384"})
    round_ = host.round()
    assert read_host_modules(round_) == HostModulesReading(loaded=LOADED)
    assert round_.failures == ["malformed"]


def test_an_unreadable_list_is_a_failure(host: HostTree) -> None:
    host.spoil("proc/modules")
    with pytest.raises(HostReadFailed, match="io_error"):
        read_host_modules(host.round())
