#!/bin/sh
set -e

unit=gpu-triage-exporter.service

case "$1" in
configure | abort-upgrade | abort-deconfigure | abort-remove) ;;
*) exit 0 ;;
esac

systemd-sysusers gpu-triage-exporter.conf
# The service may not write below /usr, and without compiled code each start takes seconds.
python@PYTHON@ -I -m compileall -q -j 0 /usr/lib/gpu-triage-exporter/lib

# On a node of a Slurm cluster, the unit reads from this which jobs have the GPUs.
if command -v slurmd >/dev/null || [ -d /etc/slurm ]; then
    echo GPU_TRIAGE_SLURM_JOBS_DIRECTORY=/run/gpu-triage/jobs >/usr/lib/gpu-triage-exporter/slurm.env
fi

deb-systemd-helper unmask "$unit" >/dev/null || true
if deb-systemd-helper --quiet was-enabled "$unit"; then
    deb-systemd-helper enable "$unit" >/dev/null || true
else
    # Somebody disabled it: keep it so.
    deb-systemd-helper update-state "$unit" >/dev/null || true
fi

if [ -d /run/systemd/system ]; then
    systemctl --system daemon-reload >/dev/null || true
    if [ -n "$2" ]; then
        deb-systemd-invoke try-restart "$unit" >/dev/null || true
    else
        deb-systemd-invoke start "$unit" >/dev/null || true
    fi
fi
