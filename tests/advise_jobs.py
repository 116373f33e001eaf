"""Jobs on simulated hosts, with the estimate worked out by hand: `expression = result`.

Line rates per direction: 18 links of 26.562 GB/s on H100, 6 of 25.781 GB/s on V100 (2 to each of the three others),
PCIe 4.0 x16 = 16e9 * 16 * 128/130 / 8 = 31.508e9 bytes per second. Shares that an all-reduce reaches: 0.6 to 0.75 of
NVLink, 0.4 to 0.65 of PCIe with peer access, 0.17 to 0.33 through host memory. In the best case, 2/3 of the compute
time hides the exchange, except for its last 25 MiB.
"""

from typing import NamedTuple

NVSWITCH, PCIE4 = "18 * 26.562e9", "31.508e9"


class Case(NamedTuple):
    """A job and its answer; the exchange in seconds of the worst case, and the speedup, of a group."""

    host: str
    options: str
    choice: str
    use: str
    exchange: str = ""
    worst: str = ""
    best: str = ""
    says: tuple[str, ...] = ()


CASES = (
    Case("2 RTX 4070 Ti", "--params 350M", "depends", "0",
         f"2: 350e6 * 4 * 2 * 1/2 / ({PCIE4} * 0.17) = 0.26137",
         # Worst: 2 * 7/3 * (0.26137 + 0.017); best: 2 * 7/3 * (0.13465 + 0.0044) / (1 + 7/3 * 2/3).
         says=("two GPUs are worth it if a step takes one GPU more than 1.30 s, not if less than 254 ms; between, try",
               "CUDA_VISIBLE_DEVICES=0,1 torchrun --nproc-per-node 2 train.py",
               "all_reduce_perf -b 1400000000 -e 1400000000 -g 2")),
    Case("2 RTX 4070 Ti", "--params 350M --step-time 200ms", "one", "0",
         f"2: 350e6 * 4 * 2 * 1/2 / ({PCIE4} * 0.17) = 0.26137",
         "0.2 / (0.2 / 2 + 0.26137 + 0.017) = 0.5286",
         # 0.13465 s of exchange, of which 2/3 of 0.1 s is hidden.
         "0.2 / (0.2 / 2 + (0.13465 - 0.06667) + 0.0044) = 1.1602",
         ("leave GPU 1 to other jobs", "chipset_not_supported")),
    Case("2 RTX 4070 Ti", "--params 350M --step-time 500ms", "try", "0",
         worst="0.5 / (0.5 / 2 + 0.26137 + 0.017) = 0.9463",
         # All is hidden but the last bucket: 25 * 2**20 of 1.4e9 bytes.
         best="0.5 / (0.5 / 2 + 0.13465 * 26.2144e6 / 1.4e9 + 0.0044) = 1.9460",
         says=("until you have tried more", "CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=0,1 torchrun")),
    Case("2 RTX 4070 Ti", "--params 350M --step-time 2s", "several", "0-1",
         worst="2 / (2 / 2 + 0.26137 + 0.017) = 1.5645",
         best="2 / (2 / 2 + 0.13465 * 26.2144e6 / 1.4e9 + 0.0044) = 1.9863"),
    Case("2 RTX 4070 Ti", "--params 350M --step-time 2s --gradient-bits 16", "several", "0-1",
         f"2: 350e6 * 2 * 2 * 1/2 / ({PCIE4} * 0.17) = 0.13068",
         "2 / (2 / 2 + 0.13068 + 0.017) = 1.7426"),
    Case("2 RTX 4070 Ti", "--params 350M --step-time 650ms --grow-batch", "several", "0-1",
         worst="2 * 0.65 / (0.65 + 0.26137 + 0.017) = 1.4003",
         says=("the total batch grows with the GPUs",)),
    # 16e9 * 4 * 128/130 / 8 = 7.877e9: the slower slot decides.
    Case("2 RTX 4070 Ti, x4", "--params 350M --step-time 500ms", "one", "0",
         "2: 350e6 * 4 * 2 * 1/2 / (7.877e9 * 0.17) = 1.0455",
         best="0.5 / (0.5 / 2 + (0.53858 - 0.16667) + 0.0044) = 0.7983",
         says=("PCIe 4.0 x4 at GPU 1 = 7.88 GB/s",)),
    # Without peer access, data of both cards pass the switch's one uplink.
    Case("2 RTX 4070 Ti, switch", "--params 350M --step-time 2s", "try", "0",
         f"2: 350e6 * 4 * 2 * 1/2 / ({PCIE4} / 2 * 0.17) = 0.52274",
         "2 / (2 / 2 + 0.52274 + 0.017) = 1.2989",
         says=("shared by 2 GPUs at the uplink of switch 0000:02:00.0 = 15.8 GB/s",)),
    Case("2 A10", "--params 350M --step-time 600ms", "several", "0-1",
         f"2: 350e6 * 4 * 2 * 1/2 / ({PCIE4} * 0.40) = 0.11108",
         "0.6 / (0.6 / 2 + 0.11108 + 0.005) = 1.4420",
         says=("directly over PCIe, path SYS, which crosses the sockets",)),
    Case("2 A10", "--params 350M --step-time 200ms --gpus 1", "one", "0", says=("one GPU was asked for",)),
    Case("2 A10, 1 sick", "--params 350M --step-time 200ms", "one", "1",
         says=("only one GPU is usable", "GPU 0: critical finding pcie.width: 8 of 16 lanes under load")),
    Case("2 A10, 1 lost", "--params 350M --gpus 2", "one", "0",
         says=("--gpus 2: the answer is for the usable GPUs, 1 of 2", "GPU 1: critical finding gpu.lost")),
    Case("2 A10, starved", "--params 350M --step-time 2s", "one", "0",
         worst="2 / (2 / 2 + 0.11108 + 0.005) = 1.7920",
         says=("the host cannot feed more", "storage.not_responding")),
    Case("4 V100", "--params 350M --step-time 100ms", "try", "0",
         "4: 350e6 * 4 * 2 * 3/4 / (6 * 25.781e9 * 0.60) = 0.022627",
         "0.1 / (0.1 / 4 + 0.022627 + 0.005) = 1.9002",
         "0.1 / (0.1 / 4 + 0.018101 - 0.016667 + 0.0002) = 3.7546",
         ("6 links of 25.8 GB/s at GPU 0 = 155 GB/s", "CUDA_VISIBLE_DEVICES=0,1,2,3 torchrun --nproc-per-node 4")),
    # Four are sure, eight only possible.
    Case("8 H100", "--params 3B --step-time 900ms", "several", "0-3",
         f"8: 3e9 * 4 * 2 * 7/8 / ({NVSWITCH} * 0.60) = 0.073204",
         "0.9 / (0.9 / 8 + 0.073204 + 0.005) = 4.7193",
         "0.9 / (0.9 / 8 + 0.058563 * 26.2144e6 / 12e9 + 0.0002) = 7.9768",
         ("4 GPUs: compute 225 ms, exchange 18.0 GB in", "CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7 torchrun")),
    # A model of 70 B neither fits nor splits here: whether a second GPU pays is a question of its exchange alone.
    Case("8 H100", "--params 70B --step-time 120s", "several", "0-7"),
    # Six usable GPUs: the largest power of two is 4.
    Case("8 H100, 2 sick", "--params 3B --step-time 5s", "several", "0-2, 4",
         f"4: 3e9 * 4 * 2 * 3/4 / ({NVSWITCH} * 0.60) = 0.062747",
         says=("GPU 3: critical finding thermal.hw", "GPU 5: critical finding pcie.width")),
    Case("2 H100, 1 MIG", "--params 3B --step-time 900ms", "one", "1", says=("GPU 0: split by MIG",)),
)  # fmt: skip

STUDY = (
    # Trained parameters, total batch, samples per second of one GPU and of two, as published; all lose.
    ("258K", 16, 2422, 2039),
    ("258K", 32, 4156, 3567),
    ("258K", 64, 8234, 6789),  # 7.8 ms
    ("258K", 128, 16883, 12345),
    ("6.9M", 8, 431, 336),
    ("6.9M", 16, 789, 678),
    ("6.9M", 32, 1245, 1123),  # 25.7 ms
    ("6.9M", 64, 2101, 1841),
)
