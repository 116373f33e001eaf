"""Offline triage: judges the files of a support case the way a live host is judged."""

from __future__ import annotations

from gpu_triage.cli.offline.files_report import check_files

__all__ = ["check_files"]
