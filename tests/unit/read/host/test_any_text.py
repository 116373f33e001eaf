"""Whatever a kernel file contains, a parser understands it or raises ValueError."""

from collections.abc import Callable
from contextlib import suppress
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpu_triage.driver.kernel.procfs import parse_pressure
from gpu_triage.read.host.cpu import parse_load1, parse_stat
from gpu_triage.read.host.disk import parse_disk, parse_gds_stats, parse_lustre_stats
from gpu_triage.read.host.host_memory import parse_values
from gpu_triage.read.host.infiniband import parse_rate, parse_state, parse_words
from gpu_triage.read.host.network_interfaces import parse_interface
from gpu_triage.read.host.nfs import nfs_sections, parse_section
from gpu_triage.read.host.platform import parse_module

MOUNT = "device server:/export mounted on /data with fstype nfs4 statvers=1.1\n\tbytes:\t1 2 3 4 5 6 7 8\n"


def parse_mountstats(text: str) -> object:
    return [parse_section(version, lines) for _, version, lines in nfs_sections(text)]


PARSERS: dict[str, tuple[Callable[[str], object], tuple[str, ...]]] = {
    "stat": (parse_stat, ("cpu0 {}", "ctxt {}", "cpu0 1 1 1 1\n{}")),
    "loadavg": (parse_load1, ("0.{} ",)),
    "meminfo": (partial(parse_values, names=("MemTotal",), unit="kB"), ("MemTotal:{}", "MemTotal: 1 kB\n{}")),
    "vmstat": (partial(parse_values, names=("pswpin",)), ("pswpin {}", "pswpin 3\n{}")),
    "diskstats": (parse_disk, ("8 0 sda {}", f"8 0 sda {'1 ' * 11}{{}}")),
    "lustre": (parse_lustre_stats, ("read_bytes {}", "read_bytes 1 samples [bytes] 1 2 {}")),
    "nvidia-fs": (parse_gds_stats, ("Reads\t: n=1 ok={}", "Ops\t: Read=1 {}")),
    "net/dev": (parse_interface, ("eth0:{}", f"{{}}: {'1 ' * 16}")),
    "mountstats": (
        parse_mountstats,
        (MOUNT + "{}", f"{MOUNT}\tper-op statistics\n\tREAD: {{}}", f"{MOUNT}\tper-op statistics\n\tREAD: 1 1 {{}} 1"),
    ),
    "modules": (parse_module, ("nvidia 1 1 {}",)),
    "pressure": (parse_pressure, ("some {}", "some avg10=0.00 total={}")),
    "state": (parse_state, ("4: {}",)),
    "rate": (parse_rate, ("400 {}",)),
    "words": (parse_words, ("1{}",)),
}


@pytest.mark.parametrize("name", PARSERS)
@given(text=st.text())
def test_any_text_is_understood_or_a_value_error(name: str, text: str) -> None:
    parse, templates = PARSERS[name]
    for candidate in (text, *(template.format(text) for template in templates)):
        with suppress(ValueError):
            parse(candidate)
