"""What has been measured of one GPU against two in data-parallel training, and where the measurements end.

Source: a published study of 120 hours on two GeForce RTX 4070 Ti SUPER (PCIe 4.0 x16, host bridge, no peer access,
TensorFlow 2.19, NCCL 2.18), fully connected networks of 258 K and 6.9 M parameters at batch sizes of 8 to 128, and
recurrent and transformer models of 0.2 M to 3 M. Its times by phase do not add up to its times by step, so only its
throughputs are used here. Efficiency is the speedup divided by the number of GPUs.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

SOURCE: Final = "measured on two RTX 4070 Ti SUPER, PCIe 4.0 x16, no peer access, data-parallel training"

MEASURED_GPUS: Final = 2
LARGEST_MEASURED: Final = 6_900_000
"""Parameters of the largest model measured; what is said of larger ones is its author's extrapolation."""

WORTHWHILE_BATCH: Final = 64
"""Batch size from which several GPUs may pay."""

WORTHWHILE_EFFICIENCY: Final = 0.7
"""Efficiency below which a second GPU was judged not to be worth its price."""


class Band(Enum):
    """What the study says of models of a size."""

    NEVER = "several GPUs never pay"
    SINGLE = "one GPU is faster as a rule"
    OPEN = "near break-even"
    CONSIDER = "several GPUs may pay"
    SEVERAL = "several GPUs should pay"


@dataclass(frozen=True, slots=True)
class SizeBand:
    """Models up to a size.

    Attributes:
        below: parameters, excluded.
        band: what is said of them.
        efficiency: lowest and highest scaling efficiency of two GPUs measured; None where nothing was.
    """

    below: float
    band: Band
    efficiency: tuple[float, float] | None


BANDS: Final = (
    # 258 K parameters: speedups of 0.73 to 0.86; recurrent models of 0.2 to 0.5 M lost 20 to 28 %.
    SizeBand(1e6, Band.NEVER, (0.36, 0.43)),
    # Transformers of 1.5 to 3 M lost 15 to 20 %; a loss of 15 to 25 % is given as typical.
    SizeBand(5e6, Band.SINGLE, (0.37, 0.43)),
    # 6.9 M parameters: speedups of 0.78 to 0.90.
    SizeBand(10e6, Band.OPEN, (0.39, 0.45)),
    SizeBand(50e6, Band.CONSIDER, None),
    SizeBand(float("inf"), Band.SEVERAL, None),
)


def band_of(parameters: float) -> SizeBand:
    """What is said of models of this size."""
    return next(each for each in BANDS if parameters < each.below)
