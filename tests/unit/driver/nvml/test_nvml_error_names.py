from __future__ import annotations

import pynvml
import pytest
from tests.gathered import every

from gpu_triage.driver.nvml.nvml_errors import name_of


def test_a_code_that_is_newer_than_this_program_shows_its_number() -> None:
    assert name_of(250) == "error_250"


@pytest.mark.parametrize("code", [-1, 1000, 0xFFFF_FFFF])
def test_a_number_that_can_be_no_code_makes_no_label_of_its_own(code: int) -> None:
    assert name_of(code) == "malformed"


def test_every_code_of_the_header_has_a_name() -> None:
    codes = {getattr(pynvml, name) for name in dir(pynvml) if name.startswith("NVML_ERROR_")}
    assert not [code for code in every(codes) if name_of(code) == "malformed"]
