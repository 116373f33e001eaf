"""GPU health: Xids, memory errors, repairs pending a reset, and the NVSwitch fabric."""

from functools import partial
from typing import Final

from gpu_triage.judge.findings.check import Action, Area, Measure, Unit, rows_of
from gpu_triage.read.xid.codes import (
    NONFATAL_ACTION,
    NONFATAL_MEANING,
    SLOW_GSP,
    SLOW_GSP_ACTION,
    SLOW_GSP_MEANING,
    UNLISTED_MEANING,
    UNLISTED_REMEDY,
    XID_CODES,
    XidKind,
)

_critical, _warning, _info = rows_of(Area.HEALTH)
_UNCORRECTED: Final = Measure(Unit.COUNT, "{} in all")
_HOLD: Final = "5m"
_TIMES: Final = Measure(Unit.COUNT, "reported {} time(s)")


_OF_KIND: Final = {
    # Held longer than findings that a reset ends at the same time, so that none of those pages when it ends.
    XidKind.PAGE: partial(_critical, action=Action.DRAIN, topic="sick", alert="GpuXidCritical", hold="8m"),
    XidKind.TICKET: partial(_warning, action=Action.RESET, alert="GpuXidContained", hold="6m"),
    XidKind.APPLICATION: partial(_info, action=Action.FIX_JOB, alert="GpuXidApplication"),
    XidKind.INFORMATION: partial(_info, action=Action.NONE, page="GpuXidUnlisted", hold=_HOLD),
}


_repair = partial(_warning, action=Action.RESET, alert="GpuRowRemapPending", wait="1h", hold="5m")


def _sentence(meaning: str) -> str:
    """Meanings in the table of Xids are fragments."""
    return f"{meaning[0].upper()}{meaning[1:]}."


HEALTH: Final = (
    _critical("gpu.gsp_timeout", Action.DRAIN, topic="sick", page="GpuXidCritical", hold="5m", of_host=True)(
        title="a GPU's system processor (GSP) does not answer",
        meaning="The GPU's system processor (GSP) stopped answering the driver: the GPU does no more work.",
        decision="{Drain} the GPU, then reset it; reboot the host if the reset fails.",
        measure=Measure(Unit.COUNT, "{} GPU(s)"),
    ),
    *(
        _OF_KIND[kind](f"xid.{xid.code}")(
            title=f"Xid {xid.code}, {xid.meaning}", meaning=_sentence(xid.meaning), decision=xid.remedy, measure=_TIMES
        )
        for kind in XidKind
        for xid in XID_CODES.values()
        if xid.kind is kind
    ),
    _warning("xid.unlisted", Action.INSPECT_HARDWARE, "GpuXidUnlisted", hold=_HOLD)(
        title="an Xid that is not in this version's table",
        meaning=_sentence(UNLISTED_MEANING),
        decision=UNLISTED_REMEDY,
        measure=_TIMES,
    ),
    _warning("xid.nonfatal", Action.RESET, "GpuXidContained", hold=_HOLD)(
        title="an error of an NVLink that is not known to be fatal",
        meaning=_sentence(NONFATAL_MEANING),
        decision=NONFATAL_ACTION,
        measure=_TIMES,
    ),
    _warning("xid.gsp_slow", Action.RESET, "GpuXidContained", hold=_HOLD)(
        title=f"Xid {SLOW_GSP}, the GPU's system processor (GSP) answered late",
        meaning=_sentence(SLOW_GSP_MEANING),
        decision=SLOW_GSP_ACTION,
        measure=_TIMES,
    ),
    _info("xid.earlier", Action.NONE, page="GpuXidCritical")(
        title="had an Xid earlier",
        meaning="An Xid happened earlier, and the kernel log still holds it.",
        decision="Make sure that it was dealt with: if not, reset the GPU.",
        measure=_TIMES,
    ),
    _warning("xid.same_unit", Action.INSPECT_HARDWARE, "GpuXidSameUnit", hold=_HOLD)(
        title="programs keep failing in the same place of the chip",
        meaning="Different programs fail in one place of this GPU's chip: the board is at fault, not the programs.",
        decision="When its job ends, run dcgmi diag -r 3, and have the board replaced.",
        measure=Measure(Unit.COUNT, "{} process(es) failed there"),
    ),
    _warning("gpu.repeat_offender", Action.INSPECT_HARDWARE, "GpuRepeatOffender", topic="repeat_offender")(
        title="the same fault came back",
        meaning="The same fault came back on this board or in this slot: another reset will not fix it.",
        decision="If different boards failed in the slot, check the slot, riser and power; otherwise replace the "
        "board.",
        measure=Measure(Unit.COUNT, "{} time(s)"),
    ),
    _critical("ecc.uncorrected", Action.DRAIN, "GpuEccUncorrected", topic="sick", hold="5m")(
        title="uncorrected memory errors",
        meaning="The memory had errors that ECC could not correct since the driver was loaded.",
        decision="{Drain} the GPU and reset it; if they come back, plan to replace the board.",
        measure=_UNCORRECTED,
    ),
    _warning("ecc.contained", Action.RESET, page="GpuXidContained", hold="5m")(
        title="an uncorrected memory error, contained",
        meaning="The memory had an error that ECC could not correct; the driver contained it, so it hit only one job.",
        decision="Restart the job that died, and reset the GPU when its other jobs are done.",
        measure=_UNCORRECTED,
    ),
    _info("ecc.corrected", Action.NONE, page="GpuEccCorrectedRising", wait="1h")(
        title="corrected memory errors",
        meaning="ECC has just corrected memory errors: harmless alone, a warning sign if they keep coming.",
        decision="Watch the daily count.",
        measure=Measure(Unit.COUNT, "{} just now"),
    ),
    _warning("ecc.corrected_rising", Action.INSPECT_HARDWARE, "GpuEccCorrectedRising", wait="1h")(
        title="many corrected memory errors",
        meaning="ECC corrected more memory errors within a day than a healthy board has.",
        decision="Look for pending row remaps, run dcgmi diag -r 3 when its job ends, and watch for uncorrected "
        "errors.",
        measure=Measure(Unit.COUNT, "{} in a day"),
    ),
    _warning("ecc.sram_threshold", Action.INSPECT_HARDWARE, "GpuEccSramThreshold", hold="5m")(
        title="too many SRAM errors, replace the board",
        meaning="Uncorrected SRAM errors passed the board's threshold for replacement.",
        decision="Plan to replace the board.",
    ),
    _info("ecc.mode_pending", Action.NONE, hold="5m")(
        title="the ECC mode changes with the next reset",
        meaning="The ECC mode will change with the next reboot or reset.",
        decision="Make sure that this is intended.",
    ),
    _critical("memory.row_remap_failure", Action.DRAIN, "GpuRowRemapFailed", topic="sick", hold="6m")(
        title="out of spare memory rows, replace the board",
        meaning="A bad memory row could not be replaced by a spare one.",
        decision="{Drain} the GPU and replace the board.",
    ),
    _critical("memory.unrepairable", Action.DRAIN, "GpuRowRemapFailed", topic="sick", hold="6m")(
        title="memory that cannot be repaired, replace the board",
        meaning="The GPU has bad memory that neither spare rows nor spare banks can replace.",
        decision="{Drain} the GPU and replace the board.",
    ),
    _repair("memory.row_remap_pending", topic="row_remap")(
        title="a reset is due to replace a bad memory row",
        meaning="A bad memory row will be replaced at the next reset.",
        decision="Reset the GPU when its job is done.",
    ),
    _repair("memory.retired_pages_pending", topic="retired_pages")(
        title="a reset is due to retire bad memory pages",
        meaning="Bad memory pages will be retired at the next reboot.",
        decision="Reboot the host, or reset the GPU, when its job is done.",
    ),
    _repair("memory.repair_pending", topic="repair")(
        title="a reset is due to repair a part of the GPU",
        meaning="A bad memory channel or group of SMs (TPC) will be repaired at the next reset.",
        decision="Reset the GPU when its job is done.",
    ),
    _critical("recovery.action", Action.RESET, "GpuRecoveryActionNeeded", topic="sick", hold="5m")(
        title="the driver asks for a repair",
        meaning="The driver itself asks for an action to repair this GPU.",
        decision="{Drain} it and do what the driver asks for.",
    ),
    _warning("recovery.drain_and_reset", Action.RESET, "GpuRecoveryActionNeeded", hold="5m")(
        title="to be reset once its job has ended",
        meaning="The driver asks for this GPU to be drained and reset; jobs that run on it may finish.",
        decision="Take no new jobs on it, and reset it when its jobs are done.",
    ),
    _critical("fabric.unhealthy", Action.DRAIN, "GpuFabricUnhealthy", topic="sick", wait="5m", hold="7m", of_host=True)(
        title="not in a healthy NVSwitch fabric",
        meaning="The GPU has not joined the NVSwitch fabric, or its part of the fabric is unhealthy: multi-GPU jobs "
        "fail.",
        decision="{Drain} the host; check the fabric manager's service and log, then the switches.",
        measure=Measure(Unit.COUNT, "{} GPU(s)"),
    ),
    _warning("fabric.degraded", Action.INSPECT_HARDWARE, "GpuFabricDegraded", wait="5m", hold="6m")(
        title="its part of the NVSwitch fabric is degraded",
        meaning="The GPU's part of the NVSwitch fabric has less bandwidth than it should, or recovers from errors.",
        decision="Keep jobs over several GPUs off it; reset it when it is free, and read the log of the fabric "
        "manager.",
    ),
    # The wait is long enough for a restart of the service; held longer than the fabric findings that it causes.
    _critical("fabric.service_down", Action.FIX_HOST, "GpuFabricServiceDown", wait="30s", hold="8m", of_host=True)(
        title="the fabric manager does not run",
        meaning="The fabric manager does not run, and without it no CUDA job can start on GPUs behind NVSwitches.",
        decision="Read its log (journalctl -u nvidia-fabricmanager), and start it in exactly the driver's version.",
    ),
    _warning("fabric.version_mismatch", Action.FIX_HOST, page="GpuFabricServiceDown", of_host=True)(
        title="the fabric manager is not of the driver's version",
        meaning="A program that manages the NVSwitches, mostly the fabric manager, is not of the driver's version.",
        decision="Install the fabric manager (or nscq) of the driver's version and restart it: CUDA fails without a "
        "fabric.",
        measure=Measure(Unit.COUNT, "{} program(s)"),
    ),
    _warning("gpu.inforom", Action.INSPECT_HARDWARE, topic="inforom", page="GpuXidContained")(
        title="its InfoROM is damaged",
        meaning="The data that the board keeps about itself is damaged: serial number and ECC history cannot be "
        "trusted.",
        decision="Plan to have the board flashed or replaced by its vendor; it computes as before.",
    ),
)
