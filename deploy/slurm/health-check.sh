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

# The reason for which an administrator drained the node, or reserved it for maintenance (flag MAINT); nothing if nobody did.
planned() {
    line=$("$NODE_CHECK_SCONTROL" show node "$(node)" --oneliner 2>/dev/null)
    state=${line#* State=}
    why=$(printf '%s\n' "$line" | sed -n 's/.* Reason=\([^[]*[^[ ]\).*/\1/p' | cut -c 1-80)
    case ${state%% *}:$why in
        *MAINT*:*) echo "reserved${why:+: $why}" ;;
        # Drained by these scripts, by Slurm itself, or by another health check: nobody works on it yet.
        *DRAIN*:*'(gpu-triage)'* | *DRAIN*:*[Pp]'rolog error'* | *DRAIN*:*[Ee]'pilog error'* | *DRAIN*:'Kill task failed'*) ;;
        *DRAIN*:'Not responding'* | *DRAIN*:'batch job complete failure'* | *DRAIN*:'Low '* | *DRAIN*:NHC*) ;;
        *DRAIN*:?*) echo "drained: $why" ;;
    esac
}

# The exporter, and through it the pages, learn of it. It lasts while the node stays so, and for four hours without this check.
why=$(planned)
if [ -n "$why" ]; then
    path=$(program) && "$path" maintenance on --source slurm --until 4h --reason "$why" >/dev/null
elif answer | grep -q "^maintenance$(printf '\t[0-9]*\t')slurm"; then
    path=$(program) && "$path" maintenance off --source slurm >/dev/null
fi

found=$(judge)
[ -n "$found" ] || exit 0
drain "$found" || log "scontrol cannot drain the node"
