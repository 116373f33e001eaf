#!/bin/sh
# Slurm HealthCheckProgram: drains a node with a sick GPU, in use or not. Running jobs continue; no new job starts.
#
#   slurm.conf: HealthCheckProgram=/etc/slurm/gpu-triage/health-check.sh   HealthCheckInterval=60   HealthCheckNodeState=ANY
#
# It never resumes a node: README.md has what RESUME needs.
set -u
role=health-check
. "$(dirname "$(readlink -f "$0")")/judge.sh"

has_gpus || exit 0
found=$(judge)
[ -n "$found" ] || exit 0
drain "$found" || log "scontrol cannot drain the node"
