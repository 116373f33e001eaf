#!/bin/sh
# Slurm Prolog: keeps a job away from sick GPUs. It checks only the GPUs of this job, so jobs can still start on the healthy GPUs
# of a node. If a prolog fails, Slurm drains the node and requeues the job, held unless slurm.conf has nohold_on_prolog_fail.
#
# slurm.conf: see job.sh. A job that starts is recorded for the exporter, which then names it.
set -u
role=prolog
scripts=$(dirname "$(readlink -f "$0")")
. "$scripts/judge.sh"

# Nothing to check for a job without GPUs.
[ -n "${SLURM_JOB_GPUS:-}" ] || exit 0

found=$(judge "$SLURM_JOB_GPUS")
[ -n "$found" ] || exec "$scripts/job-gpus-prolog.sh"
log "the job does not start: $found"
# To its owner, Slurm shows only that the job waits (BeginTime). The other comment is the owner's.
[ -z "${SLURM_JOB_ID:-}" ] ||
    timeout 5 "$NODE_CHECK_SCONTROL" update JobId="$SLURM_JOB_ID" AdminComment="$(node): $found" >&2 ||
    log "scontrol cannot comment the job"
# Drain it before slurmd does, which would give the reason "Prolog error".
drain "$found" || log "scontrol cannot drain the node; slurmd will do it"
exit 1
