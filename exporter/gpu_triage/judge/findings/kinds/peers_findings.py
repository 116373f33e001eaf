"""The path from one GPU to another: peer access, NVLink and its switches."""

from __future__ import annotations

from typing import Final

from gpu_triage.judge.findings.check import MINUTES, Action, Advice, Area, Check, Measure, Severity, Unit

PEERS: Final = (
    Check(
        code="p2p.unavailable",
        area=Area.PEERS,
        topic="p2p",
        severity=Severity.WARNING,
        action=Action.FIX_HOST,
        alert="GpuP2pUnavailable",
        title="no direct access to other GPUs",
        advice=Advice(
            "GPUs that should reach each other directly cannot: their traffic goes through host memory.",
            "Check IOMMU, ACS, virtualization and firmware settings.",
        ),
        measure=Measure(Unit.COUNT, "GPUs that it cannot reach: {}"),
        wait_seconds=15 * MINUTES,
        hold_seconds=6 * MINUTES,
    ),
    Check(
        code="p2p.through_host",
        area=Area.PEERS,
        topic="p2p",
        severity=Severity.INFO,
        action=Action.NONE,
        page="GpuP2pUnavailable",
        title="its busy GPUs exchange data through host memory",
        advice=Advice(
            "The driver offers no direct access between these GPUs, as with most GeForce cards: what they exchange is "
            "copied through host memory and crosses both links.",
            "Nothing on these cards; jobs with little to exchange scale best, so use larger batches per GPU or "
            "accumulate gradients, and keep both cards in the fastest slots. --expect.p2p false settles it.",
        ),
        measure=Measure(Unit.COUNT, "GPUs without direct access: {}"),
        of_host=True,
    ),
    Check(
        code="nvlink.down",
        area=Area.PEERS,
        topic="nvlink",
        severity=Severity.WARNING,
        action=Action.INSPECT_HARDWARE,
        alert="GpuNvlinkDown",
        title="NVLinks are down",
        advice=Advice(
            "An NVLink link is down: collectives lose its bandwidth.",
            "Check bridges, seating and the fabric manager; reset the GPU.",
        ),
        measure=Measure(Unit.COUNT, "links that are down: {}"),
        wait_seconds=5 * MINUTES,
        hold_seconds=6 * MINUTES,
    ),
    Check(
        code="nvlink.flapping",
        area=Area.PEERS,
        topic="nvlink",
        severity=Severity.WARNING,
        action=Action.INSPECT_HARDWARE,
        alert="GpuNvlinkDown",
        title="NVLinks go down and come back",
        advice=Advice(
            "NVLinks go down and come back: collectives stall or take slower paths each time.",
            "Check bridges, seating and the fabric manager's log; reset the GPU, and inspect it if it goes on.",
        ),
        measure=Measure(Unit.COUNT, "times that a link went down: {}"),
    ),
    Check(
        code="nvlink.errors",
        area=Area.PEERS,
        topic="nvlink",
        severity=Severity.WARNING,
        action=Action.INSPECT_HARDWARE,
        alert="GpuNvlinkErrorsRising",
        title="its NVLinks count errors",
        advice=Advice(
            "NVLink links count errors.",
            "Watch them; if they go on, check bridges and seating.",
        ),
        measure=Measure(Unit.COUNT, "NVLink errors lately: {}"),
        wait_seconds=15 * MINUTES,
    ),
    Check(
        code="nvlink.recovering",
        area=Area.PEERS,
        topic="nvlink",
        severity=Severity.WARNING,
        action=Action.INSPECT_HARDWARE,
        alert="GpuNvlinkErrorsRising",
        title="one of its NVLinks recovers again and again",
        advice=Advice(
            "A link of NVLink 5 went into recovery more than once within an hour. Healthy links never do, and such a "
            "link may fail permanently within days.",
            "Plan to drain the host; have the GPU's board, the cable and the switch's port checked.",
        ),
        measure=Measure(Unit.COUNT, "recoveries within the hour: {}"),
        wait_seconds=15 * MINUTES,
        hold_seconds=60 * MINUTES,
    ),
    Check(
        code="nvlink.bit_errors",
        area=Area.PEERS,
        topic="nvlink",
        severity=Severity.WARNING,
        action=Action.INSPECT_HARDWARE,
        alert="GpuNvlinkErrorsRising",
        title="the bit error rate of its NVLinks is too high",
        advice=Advice(
            "After error correction, more bits of an NVLink link are wrong than one in a trillion.",
            "Have the GPU's board, the cable and the switch's port looked at, as for a link that recovers.",
        ),
        wait_seconds=15 * MINUTES,
    ),
    Check(
        code="c2c.down",
        area=Area.PEERS,
        topic="nvlink",
        severity=Severity.WARNING,
        action=Action.INSPECT_HARDWARE,
        page="GpuNvlinkDown",
        title="links to the CPU of its module are down",
        advice=Advice(
            "NVLink-C2C links between the GPU and its Grace CPU are down: transfers between them are slow, or fail.",
            "Drain the host and power it off and on; if they stay down, have the module replaced.",
        ),
        measure=Measure(Unit.COUNT, "C2C links that are down: {}"),
        wait_seconds=5 * MINUTES,
        hold_seconds=6 * MINUTES,
    ),
    Check(
        code="nvswitch.sxid_fatal",
        area=Area.PEERS,
        topic="nvlink",
        severity=Severity.CRITICAL,
        action=Action.DRAIN,
        alert="GpuNvswitchFatal",
        title="an NVSwitch reported a fatal error",
        advice=Advice(
            "An NVSwitch had a fatal error: jobs over several GPUs of this host fail until it is reset.",
            "Drain the host, reset all GPUs and switches or reboot; then check the switch and its links.",
        ),
        measure=Measure(Unit.COUNT, "errors that the kernel names: {}"),
        # Longer than the findings on Xids of the GPUs on its links.
        hold_seconds=9 * MINUTES,
        of_host=True,
    ),
    Check(
        code="nvswitch.sxid",
        area=Area.PEERS,
        topic="nvlink",
        severity=Severity.WARNING,
        action=Action.INSPECT_HARDWARE,
        page="GpuNvswitchFatal",
        title="an NVSwitch reported an error",
        advice=Advice(
            "An NVSwitch reported a nonfatal or old error.",
            "Watch for more of them; check the links that it names if they keep coming.",
        ),
        measure=Measure(Unit.COUNT, "errors that the kernel names: {}"),
        of_host=True,
    ),
)
