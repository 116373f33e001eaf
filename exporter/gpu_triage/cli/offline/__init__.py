"""Offline triage: judges the files of a support case the way a live host is judged."""

from __future__ import annotations

from gpu_triage.cli.offline.check import FilesRequest, check_files

__all__ = ["FilesRequest", "check_files"]
