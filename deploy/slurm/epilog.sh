#!/bin/sh
# Slurm Epilog: drains the node if a GPU of the finished job is sick, before the next job gets it.
# slurm.conf: see job.sh.
set -u
role=epilog
scripts=$(dirname "$(readlink -f "$0")")
. "$scripts/judge.sh"

"$scripts/job-gpus-epilog.sh"

[ -n "${SLURM_JOB_GPUS:-}" ] || exit 0

found=$(judge "$SLURM_JOB_GPUS")
[ -n "$found" ] || exit 0
drain "$found" && exit 0
log "scontrol cannot drain the node; slurmd will do it"
exit 1
