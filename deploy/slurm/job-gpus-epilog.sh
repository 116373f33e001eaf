#!/bin/sh
# Slurm Epilog: removes the file that job-gpus-prolog.sh wrote, because the job has released its GPUs.
set -u

folder=${JOB_GPUS_FOLDER:-/run/gpu-triage/jobs}
case ${SLURM_JOB_ID:-} in '' | *[!0-9]*) exit 0 ;; esac
rm -f "$folder/$SLURM_JOB_ID.job" "$folder/.$SLURM_JOB_ID"
exit 0
