systemd-sysusers gpu-triage-exporter.conf || :
if [ "$1" -eq 1 ]; then
    # Whether it is enabled is what the host's presets say.
    systemctl --no-reload preset gpu-triage-exporter.service >/dev/null 2>&1 || :
fi
systemctl daemon-reload >/dev/null 2>&1 || :
