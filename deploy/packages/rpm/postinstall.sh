systemd-sysusers gpu-triage-exporter.conf || :
if [ "$1" -eq 1 ]; then
    # Whether it is enabled is what the host's presets say.
    systemctl --no-reload preset gpu-triage-exporter.service >/dev/null 2>&1 || :
fi
# On a node of a Slurm cluster, the unit reads from this which jobs have the GPUs.
if command -v slurmd >/dev/null || [ -d /etc/slurm ]; then
    echo GPU_TRIAGE_SLURM_JOBS_DIRECTORY=/run/gpu-triage/jobs >/usr/lib/gpu-triage-exporter/slurm.env
fi
systemctl daemon-reload >/dev/null 2>&1 || :
