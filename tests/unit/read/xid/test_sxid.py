"""SXids of NVSwitches: what the driver of the switches prints, what is counted of it, and how it is published."""

from pathlib import Path

import pytest
from tests.captured_cards import captured
from tests.rig import only, pair_with, rig

from gpu_triage.read.xid.xid_events import SwitchError, parse_sxid
from gpu_triage.read.xid.xid_ledger import CODES_PER_GPU, SwitchErrors, XidName

pytestmark = pytest.mark.slow

SWITCH = "0000:05:00.0"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("nvidia-nvswitch1: SXid (PCI:0000:05:00.0): 20034, Fatal, Link 62 LTSSM Fault Up", (SWITCH, 20034, True)),
        ("nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress (First)", (SWITCH, 12028, False)),
        ("nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal", (SWITCH, 12028, False)),
        (
            "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Severity 1 Engine instance 62 Sub-engine instance 00",
            None,
        ),
        ("nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Data {0x10000000, 0x10000000}", None),
        ("nvidia-nvswitch0: SXid (invalid): some error", None),
        ("nvidia-nvswitch0: open (major=510)", None),
        ("NVRM: Xid (PCI:0000:05:00): 20034, Fatal, Link 62", None),
        ("", None),
    ],
)
def test_an_error_is_told_from_its_details(text: str, found: tuple[str, int, bool] | None) -> None:
    assert parse_sxid(text, 5.0) == (None if found is None else SwitchError(*found, 5.0))


def test_of_real_lines_those_that_say_how_bad_it_is_are_errors() -> None:
    for path in captured("sxid-lines.txt"):
        lines = path.read_text().splitlines()
        said = [line for line in lines if "Fatal, " in line or "Non-fatal" in line]
        assert [line for line in lines if parse_sxid(line) is not None] == said


def test_errors_are_counted_by_switch_code_and_severity_within_bounds() -> None:
    errors = SwitchErrors()
    for code, fatal, at in ((20034, True, 5.0), (20034, True, 9.0), (20034, False, 7.0)):
        errors.see(SwitchError(SWITCH, code, fatal, at))
    counts = errors.counts()[SWITCH]
    assert {name: (count.count, count.last_at) for name, count in counts.items()} == {
        ("20034", "true"): (2, 9.0),
        ("20034", "false"): (1, 7.0),
    }
    for code in range(200):
        errors.see(SwitchError(SWITCH, code, fatal=False, at=1.0))
        errors.see(SwitchError(f"0001:{code:02x}:00.0", 1, fatal=True, at=1.0))
    assert len(errors.counts()) == 64
    assert len(errors.counts()[SWITCH]) == CODES_PER_GPU + 1
    assert errors.counts()[SWITCH][XidName("other", "false")].count == 200 - CODES_PER_GPU + 2


def test_an_sxid_is_published_once_and_the_details_are_not(tmp_path: Path) -> None:
    events = (
        'at = 20\neffect = { kind = "sxid", code = 20034, switch = 1 }',
        'at = 30\neffect = { kind = "sxid", code = 12028, fatal = false }',
    )
    with rig(pair_with(tmp_path, "h100-8", *events), only("power", "identity")) as running:
        running.run_to(15)
        assert running.series("gpu_nvswitch_sxid_errors_total") == []
        running.run_to(40)
        told = {
            (labels["pci_bus_id"], labels["sxid"], labels["fatal"]): value
            for labels, value in running.series("gpu_nvswitch_sxid_errors_total")
        }
        assert told == {("0000:08:00.0", "20034", "true"): 1, ("0000:07:00.0", "12028", "false"): 1}
        running.kernel_logs(9001, "nvidia-nvswitch0: SXid (PCI:0000:07:00.0): 12028, Non-fatal, Link 32 (First)", ago=1)
        running.run_to(42)
        assert running.value("gpu_nvswitch_sxid_errors_total", sxid="12028", fatal="false") == 2
        first, last = (
            running.value("gpu_nvswitch_sxid_last_timestamp_seconds", sxid=code) or 0 for code in ("20034", "12028")
        )
        assert 0 < first < last
