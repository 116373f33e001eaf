#!/bin/sh
# Before the package is removed: fails if Slurm's files name its prolog or epilog by path, because without them Slurm drains the node.
# slurm.conf's own pattern, /usr/bin/*true, survives the removal.
set -u
folder=/usr/share/gpu-triage-exporter/slurm
set -- ${SLURM_FOLDERS:-/etc/slurm /etc/slurm-llnl /opt/slurm/etc}
named=$(
    grep -rsE "^[^#]*($folder/(job-gpus-|job|prolog|epilog)|/usr/bin/gpu-triage-or-true)" "$@"
    find "$@" -lname "$folder/*" -o -lname /usr/bin/gpu-triage-or-true 2>/dev/null
)
[ -n "$named" ] || exit 0
echo "gpu-triage-exporter is not removed, because Slurm would drain this node. Remove these first, then run 'scontrol reconfigure':" >&2
echo "$named" >&2
exit 1
