if [ "$1" -eq 0 ]; then
    /usr/share/gpu-triage-exporter/slurm/in-use.sh || exit 1
    rm -f /usr/lib/gpu-triage-exporter/slurm.env
    systemctl --no-reload disable --now gpu-triage-exporter.service >/dev/null 2>&1 || :
    # What was compiled after the installation belongs to no package.
    find /usr/lib/gpu-triage-exporter -name __pycache__ -type d -prune -exec rm -rf {} + || :
fi
