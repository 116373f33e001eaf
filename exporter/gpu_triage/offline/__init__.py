"""Triage of files: what a support case holds of a host, judged as a live host is."""

from __future__ import annotations

from gpu_triage.offline.check import FilesRequest, check_files

__all__ = ["FilesRequest", "check_files"]
