#!/bin/sh
# Slurm Prolog: keeps a job away from sick GPUs. It checks only the GPUs of this job, so jobs can still start on the healthy GPUs
# of a node. If a prolog fails, Slurm drains the node and requeues the job, held unless slurm.conf has nohold_on_prolog_fail.
#
#   slurm.conf: Prolog=/etc/slurm/gpu-triage/prolog.sh   PrologFlags=Alloc   SchedulerParameters=nohold_on_prolog_fail
set -u
role=prolog
. "$(dirname "$(readlink -f "$0")")/judge.sh"

# Nothing to check for a job without GPUs.
[ -n "${SLURM_JOB_GPUS:-}" ] || exit 0

found=$(judge "$SLURM_JOB_GPUS")
[ -n "$found" ] || exit 0
log "the job does not start: $found"
# Drain it before slurmd does, which would give the reason "Prolog error".
drain "$found" || log "scontrol cannot drain the node; slurmd will do it"
exit 1
