#!/bin/sh
# Slurm's Prolog: refuse a node whose GPUs are sick before the job starts on it. A prolog that fails drains the node and
# puts the job back into the queue, so only what is critical may fail it: a ticket must not take nodes away.
#
#   slurm.conf: Prolog=/etc/slurm/prolog.d/50-gpu-triage.sh   PrologFlags=Alloc
#
# The time limit must be below Slurm's own (PrologEpilogTimeout, or BatchStartTimeout).
set -u

program=${PREFLIGHT_PROGRAM:-/opt/gpu-triage/bin/gpu-triage}
limit_seconds=${PREFLIGHT_SECONDS:-45}
# slurmd keeps what a prolog writes to stderr in its log.
log() { echo "gpu-triage-prolog: $1" >&2; }

# A job without GPUs has no interest in them.
[ -n "${SLURM_JOB_GPUS:-}" ] || exit 0

report=$(timeout --kill-after=5 "$limit_seconds" "$program" check --fail-on critical)
status=$?

case $status in
    0) exit 0 ;;
    1) log "job ${SLURM_JOB_ID:-?}: the verdict is drain, this node is drained" ;;
    124 | 137) log "job ${SLURM_JOB_ID:-?}: no answer in $limit_seconds s: the driver hangs" ;;
    2) log "job ${SLURM_JOB_ID:-?}: the GPUs cannot be looked at" ;;
    *) report= ;;
esac
# Without a report the program is not there, was asked wrongly or is broken: that says nothing about the GPUs, and must
# not drain the cluster.
if [ -z "$report" ] && [ "$status" -ne 124 ] && [ "$status" -ne 137 ]; then
    log "job ${SLURM_JOB_ID:-?}: gpu-triage ended with $status, nothing was checked"
    exit 0
fi
log "$report"
exit 1
