#!/bin/sh
# Slurm HealthCheckProgram: drains a node with a sick GPU, in use or not. Running jobs continue; no new job starts.
#
#   slurm.conf: HealthCheckProgram=/usr/share/gpu-triage-exporter/slurm/health-check.sh   HealthCheckInterval=60   HealthCheckNodeState=ANY
#
# It never resumes a node: README.md has what RESUME needs.
set -u
role=health-check
. "$(dirname "$(readlink -f "$0")")/judge.sh"

# After a boot, an empty folder tells the exporter that no job has a GPU. On a node in use, jobs from before the prolog may.
folder=${JOB_GPUS_FOLDER:-/run/gpu-triage/jobs}
[ -d "$folder" ] || case $("$NODE_CHECK_SCONTROL" show node "$(node)" --oneliner 2>/dev/null) in
    *' State=IDLE'*) (umask 022 && mkdir -p "$folder") || log "cannot make $folder" ;;
esac

has_gpus || exit 0
found=$(judge)
[ -n "$found" ] || exit 0
drain "$found" || log "scontrol cannot drain the node"
