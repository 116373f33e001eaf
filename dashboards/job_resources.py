"""Job: memory, file systems and network of its hosts, in a folded row."""

from dashboards.board import Row
from dashboards.job_measures import MOST_SLOW, OF_GPU, SLOW_HOSTS, owned
from dashboards.panels import PanelBuilder, Query, Size, lines
from dashboards.selectors import OF_HOST, TARGET, by_gpu, gpu, host, host_legend, rate

_HALF = Size(12, 8)


def resources() -> Row:
    used, installed = (gpu(f"gpu_memory_{each}_bytes", SLOW_HOSTS) for each in ("used", "total"))
    of_gpus = f"({by_gpu(used)} / {by_gpu(installed)} and on ({OF_GPU}) {owned(SLOW_HOSTS)})"
    available, total = (
        f"max by ({TARGET}) ({host(f'gpu_host_memory_{each}_bytes', SLOW_HOSTS)})" for each in ("available", "total")
    )
    return Row(
        f"Memory, file systems and network of the {MOST_SLOW} slowest hosts",
        _panel(
            "GPU memory used",
            "Of the GPU with the least left, on each host. Near 100 %: a larger batch does not fit. Far below on "
            "all: a larger batch, or fewer GPUs.",
            Query(f"max by ({TARGET}) ({of_gpus})", OF_HOST),
            unit="percentunit",
            top=1,
        ),
        _panel(
            "Host memory used",
            "By all programs of each host. Near 100 %: the kernel ends programs soon.",
            Query(_while_mine(f"1 - {available} / {total}"), OF_HOST),
            unit="percentunit",
            top=1,
        ),
        _panel(
            "Read from and written to file systems",
            "Bytes a second of NFS, Lustre and local disks. Reads that end where GPUs wait: the storage is slow.",
            Query(_files("read", "read"), host_legend("read")),
            Query(_files("written", "write"), host_legend("written")),
            unit="binBps",
        ),
        _panel(
            "Received and sent over the network",
            "Bytes a second of Ethernet and InfiniBand. One host far below the others: look at its ports.",
            *(Query(_network(way), host_legend(name)) for way, name in (("receive", "received"), ("transmit", "sent"))),
            unit="binBps",
        ),
        folded=True,
    )


def _panel(title: str, decide: str, *queries: Query, unit: str, top: float | None = None) -> PanelBuilder:
    description = f"{decide} While the job had them. No data: not measured, or no owner is chosen."
    return lines(title, description, *queries, unit=unit, size=_HALF, top=top)


def _while_mine(expr: str) -> str:
    return f"{expr}\nand on ({TARGET}) {owned(SLOW_HOSTS)}"


def _files(disks: str, direction: str) -> str:
    mounts = f'direction="{direction}"'
    return _sum((f"disk_{disks}", ""), ("nfs", mounts), ("lustre", mounts))


def _network(way: str) -> str:
    return _sum((f"network_{way}", ""), (f"infiniband_{way}", ""))


def _sum(*counters: tuple[str, str]) -> str:
    """Bytes a second of each host, of counters with their matchers."""
    rates = (
        rate(host(f"gpu_host_{name}_bytes_total", f"{more and f'{more}, '}{SLOW_HOSTS}")) for name, more in counters
    )
    return _while_mine(f"sum by ({TARGET}) ({' or '.join(rates)})")
