#!/bin/sh
# Slurm Prolog: records which GPUs of this node the job has, for the exporter's --slurm.jobs-directory. Only the prolog knows this:
# an unprivileged process cannot see a job's GPUs until a process of the job uses them.
# prolog.sh runs it; so can your own prolog (job-gpus-epilog.sh: your own epilog).
#
# A failing prolog drains the node, so this one always succeeds. If it cannot write the file, alerts do not name the job.
set -u

folder=${JOB_GPUS_FOLDER:-/run/gpu-triage/jobs}
# Nothing to record for a job without GPUs or with an ID that is not a number.
[ -n "${SLURM_JOB_GPUS:-}" ] || exit 0
case ${SLURM_JOB_ID:-} in '' | *[!0-9]*) exit 0 ;; esac

# name TEXT: the text on one line and not longer than the exporter shows; with a line break, it could claim another user or GPU.
name() { printf '%s' "$1" | tr -d '[:cntrl:]' | cut -c1-64; }

umask 022
# If the folder is another user's, it may have links: none is written through (set -C) or moved into (-T).
set -C
{
    # Names come last: the exporter takes the first line of each variable.
    mkdir -p "$folder" && rm -f "$folder/.$SLURM_JOB_ID" &&
        printf '%s=%s\n' \
            SLURM_JOB_ID "$SLURM_JOB_ID" \
            SLURM_JOB_GPUS "$SLURM_JOB_GPUS" \
            CUDA_VISIBLE_DEVICES "${CUDA_VISIBLE_DEVICES:-}" \
            SLURM_JOB_USER "$(name "${SLURM_JOB_USER:-${SLURM_JOB_UID:-}}")" \
            SLURM_JOB_ACCOUNT "$(name "${SLURM_JOB_ACCOUNT:-}")" >"$folder/.$SLURM_JOB_ID" &&
        # Rename the finished file: the exporter may read at any time.
        mv -fT "$folder/.$SLURM_JOB_ID" "$folder/$SLURM_JOB_ID.job"
} || {
    said="job $SLURM_JOB_ID: nothing was written to $folder"
    echo "job-gpus-prolog: $said" >&2
    # slurmd logs the output of a script only if the script fails.
    timeout 5 logger -t job-gpus-prolog -p daemon.warning -- "$said"
}
exit 0
