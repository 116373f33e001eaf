"""A host as a recording: what NVML answered and what the kernel's files said, to be read again elsewhere."""

from __future__ import annotations

from gpu_triage.recording.recorder import HostRecorder
from gpu_triage.recording.replay import replayed_machine

__all__ = ["HostRecorder", "replayed_machine"]
