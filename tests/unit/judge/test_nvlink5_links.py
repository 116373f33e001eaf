"""Links of NVLink 5 that are about to fail.

Recoveries are NVML_FI_DEV_NVLINK_COUNT_LINK_RECOVERY_EVENTS (215): "Number of times link went from Up to recovery". On
one rack of GB200 (github.com/marin-community/marin, issue 9086), of 320 GPUs with 18 links each one link had any: 505
so far, and 3 more in 21 minutes. It failed five days later.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.fed import GPU, HOUR, MINUTE, Fed, loaded

from gpu_triage.read.gpu.nvlink import (
    GPU_NVLINK_ERRORS_TOTAL,
    GPU_NVLINK_LINK_BIT_ERROR_RATIO,
    GPU_NVLINK_LINK_ERRORS_TOTAL,
)
from gpu_triage.read.metrics.metric import Sample

pytestmark = pytest.mark.slow


def links(
    recoveries: Callable[[float, int], int], *, replays: bool = False, rate: float = 0.0
) -> Callable[[float], Iterator[Sample]]:
    """A GPU whose 18 links had so many recoveries at a second; with replays, it is of an earlier generation."""

    def samples(at: float) -> Iterator[Sample]:
        yield from loaded(at, 1.0)
        counts = [recoveries(at, link) for link in range(18)]
        yield GPU_NVLINK_ERRORS_TOTAL.sample(sum(counts), *GPU, "recovery")
        if replays:
            yield GPU_NVLINK_ERRORS_TOTAL.sample(0, *GPU, "replay")
        for link, count in enumerate(counts):
            yield GPU_NVLINK_LINK_ERRORS_TOTAL.sample(count, *GPU, str(link), "recovery")
        yield GPU_NVLINK_LINK_BIT_ERROR_RATIO.sample(rate, *GPU, "7", "effective")

    return samples


def one_link(at: float, link: int) -> int:
    return 505 + int(at // (7 * MINUTE)) if link == 14 else 0


def test_a_link_that_recovers_thrice_in_21_minutes_is_a_warning_and_named() -> None:
    fed = Fed()
    changes = fed.states("nvlink.recovering", HOUR, links(one_link))
    assert [state for _, state in changes] == ["pending", "confirmed"]
    assert changes[0][0] <= 15 * MINUTE
    found = fed.finding("nvlink.recovering")
    assert found.measured.startswith("link 14 recovered ")
    assert found.value is not None
    assert 6 <= found.value <= 9
    assert fed.codes() == {"nvlink.recovering"}


def test_links_that_each_recover_once_are_no_warning() -> None:
    # As when a switch's tray is restarted.
    fed = Fed()
    fed.run(HOUR, links(lambda at, _: 3 + (at >= 600)))
    assert "nvlink.recovering" not in fed.codes()


def test_lifetime_recoveries_of_a_link_that_is_quiet_are_no_warning() -> None:
    fed = Fed()
    fed.run(HOUR, links(lambda _, link: 505 if link == 14 else 0))
    assert fed.codes() == set()


def test_earlier_generations_recover_without_being_about_to_fail() -> None:
    fed = Fed()
    fed.run(HOUR, links(one_link, replays=True))
    assert fed.codes() == set()


@pytest.mark.parametrize(("rate", "codes"), [(1e-12, set()), (2e-12, {"nvlink.bit_errors"})])
def test_an_effective_bit_error_rate_above_dcgms_limit_is_a_warning(rate: float, codes: set[str]) -> None:
    # IsEffectiveBerThresholdExceeded of DCGM (DcgmUtilities.cpp): above 1e-12.
    fed = Fed()
    fed.run(30 * MINUTE, links(lambda _at, _link: 0, rate=rate))
    assert fed.codes() == codes
