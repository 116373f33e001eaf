"""Paths of the HTTP server beside that of the metrics, which is an option."""

from __future__ import annotations

HEALTHY_PATH = "/-/healthy"
READY_PATH = "/-/ready"
VERDICT_PATH = "/api/v1/verdict"
RELEASE_PATH = "/-/release"
ACQUIRE_PATH = "/-/acquire"
RUNBOOKS_PATH = "/runbooks/"
