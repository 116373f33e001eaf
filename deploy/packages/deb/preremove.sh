#!/bin/sh
set -e

if [ "$1" = remove ]; then
    /usr/share/gpu-triage-exporter/slurm/in-use.sh
    rm -f /usr/lib/gpu-triage-exporter/slurm.env
fi
if [ "$1" = remove ] && [ -d /run/systemd/system ]; then
    deb-systemd-invoke stop gpu-triage-exporter.service >/dev/null || true
fi
# What postinst compiled belongs to no package.
find /usr/lib/gpu-triage-exporter -name __pycache__ -type d -prune -exec rm -rf {} +
