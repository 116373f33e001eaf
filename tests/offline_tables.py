"""The table that ``nvidia-smi`` prints, made up piece by piece for the tests of offline triage."""

TABLE_HEAD = """Sat Mar 14 10:00:00 2026
+-----------------------------------------------------------------------------------------+
| NVIDIA-SMI 550.54.15              Driver Version: 550.54.15      CUDA Version: 12.4     |
|-----------------------------------------+------------------------+----------------------+
| GPU  Name                 Persistence-M | Bus-Id          Disp.A | Volatile Uncorr. ECC |
| Fan  Temp   Perf          Pwr:Usage/Cap |           Memory-Usage | GPU-Util  Compute M. |
|                                         |                        |               MIG M. |
|=========================================+========================+======================|
"""
TABLE_PROCESSES = """
+-----------------------------------------------------------------------------------------+
| Processes:                                                                              |
|  GPU   GI   CI        PID   Type   Process name                              GPU Memory |
|        ID   ID                                                               Usage      |
|=========================================================================================|
|    0   N/A  N/A      4242      C   /opt/conda/bin/python3                      1016MiB  |
"""
TABLE_END = "+-----------------------------------------------------------------------------------------+\n"


def table_row(index: int, bus: int, errors: str = "0") -> str:
    return (
        f"|   {index}  NVIDIA A100-SXM4-40GB          On  |   00000000:{bus:02X}:00.0 Off |{errors:>21} |\n"
        "| N/A   34C    P0             60W /  400W |    1024MiB /  40960MiB |    100%      Default |\n"
        "|                                         |                        |             Disabled |\n"
        "+-----------------------------------------+------------------------+----------------------+\n"
    )
