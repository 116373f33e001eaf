"""GPU detail: health."""

from dashboards.board import Row
from dashboards.panels import Query, Size, lines
from dashboards.selectors import TARGET, by_gpu, gpu, legend, risen, when
from dashboards.tables import Column, ago, table_of
from dashboards.value_mappings import FABRIC_CONFIGURATION, FABRIC_HEALTH, FABRIC_STATE, NO_FAULT, RECOVERY


def health() -> Row:
    return Row(
        "Health",
        table_of(
            "Faults and repairs",
            "Anything red kills jobs: drain, then reset or replace. N/A: this model does not report it. No data: the "
            "exporter does not know this GPU.",
            Column("Recovery needed", expr=by_gpu(gpu("gpu_recovery_action")), texts=RECOVERY),
            Column("Remap failed", expr=by_gpu(gpu("gpu_row_remap_failure")), texts=NO_FAULT),
            Column("Remap pending", expr=by_gpu(gpu("gpu_row_remap_pending")), texts=NO_FAULT),
            Column("Unrepairable", expr=by_gpu(gpu("gpu_memory_unrepairable")), texts=NO_FAULT),
            Column("Repair pending", expr=by_gpu(gpu("gpu_repair_pending")), texts=NO_FAULT),
            Column("Banks pending", expr=by_gpu(gpu("gpu_bank_remap_pending")), texts=NO_FAULT),
            Column("Pages pending", expr=by_gpu(gpu("gpu_retired_pages_pending")), texts=NO_FAULT),
            Column("SRAM over limit", expr=by_gpu(gpu("gpu_ecc_sram_threshold_exceeded")), texts=NO_FAULT),
            Column("Fabric", expr=by_gpu(gpu("gpu_fabric_state")), texts=FABRIC_STATE),
            Column("Fabric's health", expr=by_gpu(gpu("gpu_fabric_health")), texts=FABRIC_HEALTH),
            Column("Fabric's configuration", expr=by_gpu(gpu("gpu_fabric_configuration")), texts=FABRIC_CONFIGURATION),
            Column("Failures in one unit", expr=by_gpu(gpu("gpu_xid_suspect_unit_processes"))),
            Column("Fabric's faults", expr=f"sum by ({TARGET}, gpu) ({gpu('gpu_fabric_fault')})"),
            ago("Last reset", expr=when(by_gpu(gpu("gpu_reset_timestamp_seconds")))),
            Column("Error", label="error"),
            Column("Fails", expr=by_gpu(gpu("gpu_error_info"), "error"), hidden=True),
            size=Size(24, 4),
        ),
        table_of(
            "Fabric over several hosts",
            "GPUs of one clique reach each other's memory through the switches, also on other hosts. "
            "No data: the GPU is not in a fabric of several hosts.",
            Column("Fabric", label="cluster_uuid"),
            Column("Clique", label="clique"),
            Column("Joined", expr=by_gpu(gpu("gpu_fabric_info"), "cluster_uuid", "clique"), hidden=True),
            size=Size(8, 5),
        ),
        table_of(
            "Incidents",
            "How often this board, and this slot, had the same fault. A reset will not fix what keeps coming back. No "
            "data: no fault in 30 days, or the exporter keeps no incidents.",
            Column("Fault", label="kind"),
            Column("On the", label="by"),
            Column("Last 7 days", expr=_incidents(_WEEK)),
            Column("Last 30 days", expr=_incidents(_MONTH)),
            Column("Boards in this slot", expr=by_gpu(gpu("gpu_incident_boards_recent", _MONTH), "kind")),
            sort="-Last 30 days",
            size=Size(16, 5),
        ),
        table_of(
            "Accepted findings and repairs",
            "What operators accepted on this GPU and until when, and when it was repaired, by gpu-triage accept and "
            "repaired on the host. No alert fires for an accepted finding. No data: nothing accepted or repaired.",
            Column("Finding", label="code"),
            Column("By", label="by"),
            Column("Note", label="note"),
            ago("Until, or repaired", expr=when(_decided())),
            sort="-Until, or repaired",
            size=Size(24, 4),
        ),
        lines(
            "ECC errors per hour",
            "Uncorrected ones kill jobs. More corrected ones than its peers: plan a replacement. dram: the device "
            "memory, which the GPU repairs by remapping. sram: the chip itself, which it cannot repair. No data: "
            "this card has no ECC, or it is off.",
            Query(f"increase({gpu('gpu_ecc_volatile_errors_total')}[1h])", legend("{{severity}}")),
            Query(f"increase({gpu('gpu_ecc_aggregate_errors_total')}[1h])", legend("{{severity}}, lifetime")),
            Query(risen(gpu("gpu_ecc_memory_errors_total"), "1h"), legend("{{severity}} in {{memory}}")),
            unit="short",
        ),
        lines(
            "Repaired memory, and spares left",
            "Rows remapped and pages retired so far, by cause, and whole banks replaced. A few rows are normal; a rise "
            "due to uncorrectable errors is not. Banks with few or no spare rows, and groups of banks without spare "
            "banks, cannot be repaired much longer. No data: this card repairs no memory, or does not report it.",
            Query(gpu("gpu_remapped_rows"), legend("rows, {{cause}}")),
            Query(gpu("gpu_retired_pages"), legend("pages, {{cause}}")),
            Query(gpu("gpu_remapped_banks"), legend("banks, {{state}}")),
            Query(gpu("gpu_row_remap_banks"), legend("banks, rows left: {{availability}}")),
            Query(gpu("gpu_bank_remap_groups"), legend("groups, banks left: {{availability}}")),
            unit="short",
        ),
        table_of(
            "Xids of this GPU",
            "Every Xid since the start of the host's kernel log, when it last occurred, and how often in the time "
            "shown. No data: no Xid reported, or the kernel log is not read.",
            Column("Xid", label="xid", width=60),
            ago("When", expr=when(f"max by ({TARGET}, gpu, xid) ({_LAST_XID})")),
            Column(
                "Times",
                expr=f"sum by ({TARGET}, gpu, xid) {risen(gpu('gpu_xid_errors_total'), '$__range')}",
                decimals=0,
                width=70,
            ),
            sort="-When",
            size=Size(8, 7),
        ),
        folded=True,
    )


_LAST_XID = gpu("gpu_xid_last_timestamp_seconds")

_WEEK = 'days="7"'
_MONTH = 'days="30"'


def _decided() -> str:
    accepted = f'label_replace({gpu("gpu_finding_accepted_until_timestamp_seconds")}, "note", "$1", "reason", "(.+)")'
    repaired = f'label_replace({gpu("gpu_repaired_timestamp_seconds")}, "code", "repaired", "", "")'
    return f"max by ({TARGET}, gpu, code, by, note) ({accepted} or {repaired})"


def _incidents(days: str) -> str:
    return f"max by ({TARGET}, gpu, kind, by) ({gpu('gpu_incidents_recent', days)})"
