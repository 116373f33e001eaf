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

# planned NODE: the reason for which an administrator drained the node, or reserved it for maintenance (flag MAINT), by the line that
# scontrol shows of it; nothing if nobody did. Slurm drains as SlurmUser. As root come administrators, but also slurmd, health checks and,
# where SlurmUser is root, slurmctld: those are known by their reasons.
planned() {
    state=${1#* State=}
    set -- "${state%% *}" "$(printf '%s\n' "$1" | sed -n 's/.* Reason=\(.*\) \[\([^]@ ]*\)@[0-9T:-]*\].*/\2 \1/p')"
    why=$(printf '%s\n' "${2#* }" | cut -c 1-80)
    slurm=$("$NODE_CHECK_SCONTROL" show config 2>/dev/null | sed -n 's/^SlurmUser *= *\([^( ]*\).*/\1/p')
    [ "$slurm" != root ] || slurm=
    case $1:${2%% *}:$why in
        *MAINT*:*) echo "reserved${why:+: $why}" ;;
        *DRAIN*:"${slurm:-slurm}":* | *DRAIN*:*'(gpu-triage)'* | *DRAIN*:root:NHC*) ;;
        *DRAIN*:root:[Pp]'rolog error'* | *DRAIN*:root:[Ee]'pilog error'* | *DRAIN*:root:'Kill task failed'* | *DRAIN*:root:'Low '*) ;;
        *DRAIN*:root:'Not responding'* | *DRAIN*:root:'Node unexpectedly rebooted'* | *DRAIN*:root:'gres/'*) ;;
        *DRAIN*:root:'batch job complete failure'* | *DRAIN*:root:'Duplicate jobid'* | *DRAIN*:root:'SlurmdSpoolDir is full'*) ;;
        *DRAIN*:?*:?*) echo "drained: $why" ;;
    esac
}

# The exporter, and through it the pages, learn of it. It lasts while the node stays so, and for four hours without this check, or
# without an answer from slurmctld.
shown=$("$NODE_CHECK_SCONTROL" show node "$(node)" --oneliner 2>/dev/null)
why=$(planned "$shown")
if [ -n "$why" ]; then
    path=$(program) && "$path" maintenance on --source slurm --until 4h --reason "$why" >/dev/null
elif [ "${shown#NodeName=}" != "$shown" ] && answer | grep -q "^maintenance$(printf '\t[0-9]*\t')slurm"; then
    path=$(program) && "$path" maintenance off --source slurm >/dev/null
fi

found=$(judge)
[ -n "$found" ] || exit 0
drain "$found" || log "scontrol cannot drain the node"
